"""Hugging Face data sets on disk: folders of `save_to_disk` (Arrow), and Parquet files.

scan.py          the source: tables -> rows -> raw items
tables.py        which files hold the rows, and the split that each is of
columns.py       what the columns of a table mean
rows.py          one table -> its rows, without their images
labels.py        a value of a column of classes -> a label
objects.py       a value of a column of objects -> boxes
pictures.py      the file of a row whose image is not in the table
account.py       what was met, and the notes that say it
arrow_files.py   opens files with pyarrow, which few need
"""
