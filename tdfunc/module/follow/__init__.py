"""References among attributes: found, and pointed at the clones."""

from ._memory import same as same
from ._place import Place as Place
from ._place import path_of as path_of
from ._references import Follow as Follow
