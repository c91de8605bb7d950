"""Storage of columns as bytes: packed by a put, stored, gathered by a get.

column_block  StoredColumn, ColumnBlock: what a put stores, one buffer per column; numpy only
encode        TensorDict ──▶ ColumnBlock, and selected rows ──▶ TensorDict
selection     which rows a read selects, and where their bytes are
gather        selected rows, in the requested order ──▶ columns in fresh memory;
              the live rows of a block ──▶ a smaller block
objects       object columns, encoded row by row (plain Python values by codec)
"""
