"""Columns as bytes: packed by a put, kept by a store, gathered by a read.

parcel    what a put ships: one buffer per column; needs numpy only
pack      TensorDict ──▶ Parcel, and columns ──▶ TensorDict
gather    rows of parcels, in the order asked ──▶ columns in fresh memory
objects   object columns row by row; codec: plain Python values, exactly
"""
