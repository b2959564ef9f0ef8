"""Pictures with a mask each."""
