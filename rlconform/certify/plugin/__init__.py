"""The test process: the plane opened, looked after and closed; each check's result told."""
