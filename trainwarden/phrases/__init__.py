"""What the tools around a training print when they fail, by slug of the taxonomy. The first match wins."""

from trainwarden.phrases.distributed import DISTRIBUTED
from trainwarden.phrases.gpu import GPU
from trainwarden.phrases.outside import OUTSIDE
from trainwarden.phrases.phrase import Phrases
from trainwarden.phrases.program import PROGRAM
from trainwarden.phrases.storage import STORAGE

# The specific stand before the general, here and within each.
PHRASES: Phrases = (*GPU, *DISTRIBUTED, *STORAGE, *PROGRAM, *OUTSIDE)
