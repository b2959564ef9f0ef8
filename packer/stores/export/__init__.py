"""A store -> files that other tools read: folders, COCO, YOLO, Pascal VOC, tar, Parquet.

In: the path of a store. Out: a folder of files, and a report of what the layout could not carry.
Called by `packer.export` and by the command line.

run        begins, goes on, publishes; parts: what is written at a time
formats    the layouts, a row each; writer: what a module of one offers
folder, coco, yolo, voc, tar, parquet   one layout each
names      where the picture of each sample goes; pictures: its bytes; samples: all of it
losses     what a layout cannot carry; outlines, turned: objects as other tools write them
"""
