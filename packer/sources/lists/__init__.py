"""Lists of pictures: tables with a column of paths."""
