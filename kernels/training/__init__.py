"""Small decoders trained on this machine, to compare designs by their loss on text they have not seen.

`recipe.py` and `corpus.py` need no torch: what is trained, on what. `model.py` is the decoder of a `ModelSpec`,
`train.py` the training of one. Who trains several, on several cores, is `workbench/train_designs.py`.
"""

from importlib.util import find_spec

from ...errors import UsageError

if find_spec("torch") is None:
    raise UsageError("training needs torch: pip install 'codesign-workbench[measure]'")
