"""One thing that speaks for a layout, and how strongly.

100  a file that names its format itself: COCO json, data.yaml
80  folders and files whose names and content belong to one format: VOC, KITTI, IDX
60  files beside pictures that belong to them: same name with .txt, a folder of masks
50  a list whose paths are there
40  a text file that mentions pictures
30  class folders
10  pictures alone
"""

from __future__ import annotations

from dataclasses import dataclass

DECLARED, STRUCTURAL, PAIRED, TABULAR, MENTIONED, FOLDERS, FLAT = 100, 80, 60, 50, 40, 30, 10

LEAD_MIN = 20
"""How far the best layout must be ahead of the second, or a user has to decide."""

FILES_MAX = 20
"""How many files of a kind are looked into."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One layout that the raw data may have.

    Attributes:
        format: Name of the source, or a key of `UNREAD`.
        score: See the head of this module.
        seen: What speaks for it.
        problem: Why its content does not pass the check, with what to do; empty when it passes.
    """

    format: str
    score: int
    seen: str
    problem: str = ""


UNREAD: dict[str, tuple[str, str]] = {
    "annotation-folders": (
        "a folder of annotations of no known kind beside one of pictures",
        "Give the format with --format if it is one of those that are read",
    ),
    "coco-results": (
        "COCO results (predictions)",
        "Give the annotations that they were made for",
    ),
    "createml": (
        "CreateML annotations",
        "Export them as COCO or Pascal VOC from the tool that made them",
    ),
    "crowdhuman": (
        "CrowdHuman annotations (.odgt, a JSON object a line)",
        "Convert them to COCO, or write the boxes as CSV: path,label,xmin,ymin,xmax,ymax",
    ),
    "csv-other": (
        "a list that says nothing about its pictures",
        "Give it a column of labels or boxes",
    ),
    "csv-pixels": (
        "pixels written as CSV",
        "Make pictures of the rows, or use the IDX files of the same data",
    ),
    "datumaro": (
        "Datumaro annotations",
        "Convert them: datum convert -f coco -- --save-media",
    ),
    "icdar": ("ICDAR text boxes", "Convert them to COCO, with the texts as attributes"),
    "labelstudio": (
        "a Label Studio export in its own form",
        "Export the project as COCO or YOLO, with images (turned boxes as YOLO OBB)",
    ),
    "litdata": (
        "LitData chunks",
        "Build from Python, with its own reader: packer.build(StreamingDataset(folder), out)",
    ),
    "mot": (
        "MOT Challenge sequences (frames in img1/, boxes by the number of the frame in gt/gt.txt)",
        "Convert them to COCO, or write the boxes as CSV: path,label,xmin,ymin,xmax,ymax",
    ),
    "npy": (
        "NumPy arrays",
        "Build from Python: packer.build(dataset, out), with any torch Dataset over them",
    ),
    "sagemaker": (
        "an augmented manifest of SageMaker Ground Truth",
        "Convert it to COCO, or write it as .jsonl with file_name and label, or as CSV",
    ),
    "sample-parts": (
        "folders that are parts of one sample each, not classes",
        "For pictures and masks, leave two folders, called images and masks, and give --format "
        "mask-pairs; for one part alone, give its folder",
    ),
    "segment-anything": (
        "Segment Anything annotations",
        "Join the JSON files to one COCO JSON: each holds one image and its annotations",
    ),
    "sidecars": (
        "files of no known kind beside the pictures, of the same names",
        "Give the format with --format if it is one of those that are read",
    ),
    "split-names": (
        "folders that have a split in their names, which makes no classes",
        "Move them into a folder for each split, such as train/A and test/A for trainA and testA",
    ),
    "supervisely": ("Supervisely annotations", "Export the project as COCO or Pascal VOC"),
    "tfrecord": (
        "TFRecord files",
        "Build from what they were made of, or from Python: packer.build(dataset, out)",
    ),
    "via": (
        "VGG Image Annotator (VIA) annotations",
        "Export them as COCO from VIA (Annotation, Export Annotations)",
    ),
    "vott": ("VoTT annotations", "Export the project as Pascal VOC or CSV"),
}
"""Formats that are recognised and that no source reads: what a message calls them, what to do."""
