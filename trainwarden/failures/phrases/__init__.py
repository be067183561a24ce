"""What the tools around a training print when they fail, by slug of the taxonomy. The first match wins."""

from trainwarden.failures.phrases.distributed import DISTRIBUTED
from trainwarden.failures.phrases.gpu import GPU
from trainwarden.failures.phrases.outside import OUTSIDE
from trainwarden.failures.phrases.phrase import Phrases
from trainwarden.failures.phrases.program import PROGRAM
from trainwarden.failures.phrases.storage import STORAGE

# The specific stand before the general, here and within each.
PHRASES: Phrases = (*GPU, *DISTRIBUTED, *STORAGE, *PROGRAM, *OUTSIDE)
