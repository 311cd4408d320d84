"""Reports as HTML pages: of training, of a deployed run, of statistics and of an audit."""
