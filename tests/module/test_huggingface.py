"""Models of transformers, built from tiny configurations: bound, compiled, stacked, and generating; nothing is downloaded."""

from __future__ import annotations

import copy
import os
import socket
import warnings

import pytest
import torch

from tdfunc import bind, buffers_of, params_of, stack, state_of, vmap

os.environ["HF_HUB_OFFLINE"] = "1"  # read when it is imported
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of its imports, which are not what is tested
    transformers = pytest.importorskip("transformers")

IDS = torch.tensor([[1, 5, 7, 9], [1, 3, 2, 8]])
SIZES = {"vocab_size": 32, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
ENDLESS = {"bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0}


def bert():
    return transformers.BertLMHeadModel(transformers.BertConfig(**SIZES, **ENDLESS, max_position_embeddings=32, is_decoder=True))


def llama(**kwargs):
    config = {"num_key_value_heads": 1, "max_position_embeddings": 32, **kwargs}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, **ENDLESS, **config))


def llama_dynamic():  # recomputes its rotary frequencies, a buffer, for sequences longer than 4
    return llama(max_position_embeddings=4, rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0})


def gpt2():
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**ENDLESS, vocab_size=32, n_embd=16, n_layer=2, n_head=2, n_positions=32))


def t5():
    sizes = {"vocab_size": 32, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
    return transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes, decoder_start_token_id=0, pad_token_id=0, eos_token_id=None))


MODELS = {"bert": bert, "llama": llama, "llama_dynamic": llama_dynamic, "gpt2": gpt2, "t5": t5}


@pytest.fixture(params=MODELS)
def name(request):
    return request.param


@pytest.fixture
def model(name):
    torch.manual_seed(1)
    return MODELS[name]().double().eval()


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    def refuse(*args):
        raise AssertionError("a test reached for the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)


def logits(model, **kwargs):
    return model(IDS, **({"decoder_input_ids": IDS[:, :3]} if model.config.is_encoder_decoder else {}), **kwargs).logits


def generate(model, **kwargs):
    return model.generate(IDS, attention_mask=torch.ones_like(IDS), max_new_tokens=5, do_sample=False, **kwargs)


def moved(state, by=0.5):
    torch.manual_seed(2)
    return state.map(lambda t: t + by * torch.randn_like(t))


def loaded(model, params):
    """Give a deep copy with these values, loaded by torch's own means."""
    twin = copy.deepcopy(model)
    values = {**twin.state_dict(), **params.to_flat()}
    twin.load_state_dict({name: value.clone() for name, value in values.items()})
    return twin


def assert_same(got, expected):
    torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)


def test_binding_its_own_state_changes_nothing(model):
    assert_same(logits(bind(model, params_of(model), buffers_of(model))), logits(model))
    assert type(bind(model, params_of(model))) is type(model)


def test_other_values_and_their_gradients_are_those_of_a_copy_with_them(model):
    params = moved(params_of(model)).requires_grad()
    twin = loaded(model, params.detach())
    got, expected = logits(bind(model, params)), logits(twin)
    assert_same(got, expected)
    assert not torch.allclose(got, logits(model))
    theirs = params_of(twin, detach=False)
    assert theirs.structure is params.structure
    grads = torch.autograd.grad(got.sin().sum(), params._leaves, allow_unused=True)
    assert_same(list(grads), list(torch.autograd.grad(expected.sin().sum(), theirs._leaves, allow_unused=True)))
    assert sum(grad is not None and bool(grad.abs().sum() > 0) for grad in grads) > len(grads) // 2


def test_tied_weights_are_one_leaf(model):
    named = dict(model.named_parameters(remove_duplicate=False))
    params = params_of(model)
    assert len(params._leaves) == len(list(model.parameters()))
    assert all(len({id(named[".".join(path)]) for path in group}) == 1 for group in params.ties)


def test_compiled_equals_eager(name, model, request):
    if name == "llama_dynamic":
        pytest.skip("it branches on a tensor")
    step = lambda params, buffers: logits(bind(model, params, buffers), use_cache=False)
    compiled = torch.compile(step, fullgraph=True, backend="eager")
    buffers = buffers_of(model)
    for params in (params_of(model), moved(params_of(model))):
        assert_same(compiled(params, buffers), step(params, buffers))


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_a_stack_of_states_equals_a_loop(model):
    members = [params_of(model), moved(params_of(model))]
    buffers = buffers_of(model)
    got = vmap(lambda params: logits(bind(model, params, buffers)))(stack(members))
    assert_same(got, torch.stack([logits(bind(model, params, buffers)) for params in members]))
    assert not torch.allclose(got[0], got[1])


def test_it_generates_what_the_model_generates(model):
    assert torch.equal(generate(bind(model, params_of(model))), generate(model))
    params = moved(params_of(model))
    got = generate(bind(model, params))
    assert torch.equal(got, generate(loaded(model, params)))
    assert not torch.equal(got, generate(model))


def test_the_module_stays_as_it_is(model, snapshot):
    state = moved(state_of(model).filter(lambda path, leaf: leaf.is_floating_point()))
    kept, before, plain = state.clone(), snapshot(model), generate(copy.deepcopy(model))
    bound = bind(model, state)
    logits(bound)
    generate(bound)
    bound.generation_config.max_new_tokens, bound.config.use_cache = 3, False
    with pytest.raises((IndexError, ValueError, TypeError, RuntimeError)):
        bound(IDS + 99)
    assert snapshot(model) == before
    assert state.equal(kept)
    assert torch.equal(generate(model), plain)


def test_a_key_value_cache_belongs_to_the_call_that_made_it(model):
    if model.config.is_encoder_decoder:
        pytest.skip("its cache starts from the decoder's tokens; generation covers it")
    bound = [bind(model, params) for params in (params_of(model), moved(params_of(model)))]
    whole = [logits(one)[:, -1] for one in bound]
    caches = [one(IDS[:, :-1], use_cache=True).cache for one in bound]
    last = [one(IDS[:, -1:], cache=cache).logits[:, -1] for one, cache in zip(bound, caches, strict=True)]
    assert_same(last, whole)


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_model_and_bound_generate_in_turn_and_neither_sees_the_cache_of_the_other(model, kind, snapshot):
    params = moved(params_of(model))
    generate(model, cache_implementation=kind)
    plain, twin = copy.deepcopy(model), loaded(model, params)
    bound, before = bind(model, params), snapshot(model)
    for _ in range(2):
        assert torch.equal(generate(bound, cache_implementation=kind), generate(twin, cache_implementation=kind))
    assert snapshot(model) == before
    for _ in range(2):
        assert torch.equal(generate(model, cache_implementation=kind), generate(plain, cache_implementation=kind))
        assert torch.equal(generate(bound, cache_implementation=kind), generate(twin, cache_implementation=kind))
