"""Optimizers as pairs of pure functions; states are TensorDicts."""

from . import schedules as schedules
from ._accumulate import accumulate as accumulate
from ._adagrad import adadelta as adadelta
from ._adagrad import adagrad as adagrad
from ._adam import adam as adam
from ._adam import adamw as adamw
from ._adamax import adamax as adamax
from ._adamax import radam as radam
from ._average import Average as Average
from ._average import ema as ema
from ._average import swa as swa
from ._base import Optimizer as Optimizer
from ._clip import clip_by_global_norm as clip_by_global_norm
from ._clip import clip_by_value as clip_by_value
from ._decay import add_decayed_weights as add_decayed_weights
from ._finite import apply_if_finite as apply_if_finite
from ._finite import loss_scale as loss_scale
from ._groups import labelled as labelled
from ._groups import masked as masked
from ._lion import lion as lion
from ._lookahead import lookahead as lookahead
from ._rmsprop import rmsprop as rmsprop
from ._sgd import sgd as sgd
from ._transform import GradientTransform as GradientTransform
from ._transform import chain as chain
from ._transform import stateless as stateless
