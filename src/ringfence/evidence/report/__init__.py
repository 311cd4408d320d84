"""Reports as HTML pages: of training, of a deployed run, of statistics and of an audit.

Internal: may change without notice. `ringfence` lists what is public.
"""
