"""The bridge between modules and trees: out (`params_of`), in (`bind`), and back (`load_into`)."""

from ._bind import bind as bind
from ._extract import buffers_of as buffers_of
from ._extract import params_of as params_of
from ._extract import state_of as state_of
from ._load_into import load_into as load_into
