"""What sources yield: raw items, the annotations on them, and the account of all else.

Light values without pixels, which cross processes. Called by everything that sees raw data.
"""
