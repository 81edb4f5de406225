# SPDX-License-Identifier: Apache-2.0
"""Cases of timestep and noise embeddings."""

import math

import numpy as np
import torch
from diffusers.models import embeddings as diffusers_embeddings

from case import ENCODING, PRESETS, Case, preset_case
from hf import module, packages
from sinusoid import encoding

DIFFUSERS = "diffusers 0.42.1 embeddings.py"
F32 = "frequency f32 (exp of f32), angle = f32 product, sin and cos f32"
STEPS = [0, 1, 2, 7, 100, 500, 999, 1000, 2001]
UNIT = [0, 0.0009765625, 0.125, 0.5, 0.75, 1]


def embedding(dim, flip=False, shift=0.0, scale=1.0, max_period=10000):
    def compute(positions):
        t = torch.tensor(positions, dtype=torch.float32)
        return diffusers_embeddings.get_timestep_embedding(t, dim, flip, shift, scale, max_period).numpy()

    return compute


def presets():
    # name, dim when the preset leaves it open, arguments
    for name, dim, arguments in (
        ("timestep-sin-cos", 64, {}),
        ("timestep-cos-sin", 64, {"flip": True}),
        ("ddpm-timestep", 64, {"shift": 1}),
        ("adm-timestep", 64, {"flip": True}),
        ("dit-timestep", None, {"flip": True}),
        ("sd-timestep", None, {"flip": True}),
        ("sdxl-time-ids", None, {"flip": True}),
        ("sd3-timestep", None, {"flip": True}),
        ("wan-timestep", None, {"flip": True}),
        ("gr00t-n1.5-timestep", None, {"flip": True, "shift": 1}),
    ):
        for width in (dim, dim + 1) if dim else (None,):  # odd widths end in a zero
            given = {"dim": width} if width else None
            positions = [0, 1, 256, 1024, 4096] if name == "sdxl-time-ids" else STEPS
            compute = embedding(width or PRESETS[name]["spec"]["dim"], **arguments)
            upstream = f"{DIFFUSERS} get_timestep_embedding"
            case = preset_case(name, positions, compute, F32, given, upstream=upstream)
            case.name += f"-{width}" if width and width % 2 else ""
            yield case
    upstream = f"{DIFFUSERS} get_timestep_embedding, t * 1000 in f32"

    def flux(positions):
        return embedding(256, flip=True)([float(np.float32(p) * np.float32(1000)) for p in positions])

    yield preset_case("flux-timestep", UNIT, flux, F32, upstream=upstream)
    qwen = embedding(256, flip=True, scale=1000)
    upstream = f"{DIFFUSERS} Timesteps(256, flip_sin_to_cos=True, downscale_freq_shift=0, scale=1000)"
    yield preset_case("qwen-image-timestep", UNIT, qwen, F32, upstream=upstream)


def conventions():
    """Arguments of get_timestep_embedding that no preset uses."""
    upstream = f"{DIFFUSERS} get_timestep_embedding"
    half = encoding("SIN_COS", "CONCATENATED", 32, downscale_freq_shift=0.5)
    yield Case("timestep-shift-half", half, STEPS, upstream, F32, embedding(32, shift=0.5))
    period = encoding("SIN_COS", "CONCATENATED", 32, downscale_freq_shift=1)
    period |= {"rope_theta": 2000, "position_scale": 2000}
    yield Case("timestep-t5-film", period, UNIT, upstream, F32, embedding(32, shift=1, scale=2000, max_period=2000))

    def sky_reels(positions):
        t = torch.tensor(positions, dtype=torch.float32)
        return diffusers_embeddings.get_1d_sincos_pos_embed_from_grid(64, t, flip_sin_to_cos=True).numpy()

    double = encoding("COS_SIN", "CONCATENATED", 64)
    f64 = "frequency, angle, sin and cos f64, rounded to f32"
    yield Case("timestep-f64", double, STEPS, f"{DIFFUSERS} get_1d_sincos_pos_embed_from_grid", f64, sky_reels)


def periods():
    """pi0 in transformers (f32), and in openpi (f64, transcribed)."""

    class Config:
        min_period, max_period = 4e-3, 4.0

        class dit_config:
            hidden_size = 1024

    pi0 = module("pi0").PI0TimestepEmbeddings(Config)

    def compute(positions):
        return pi0(torch.tensor(positions, dtype=torch.float32)).numpy()

    steps = "period and frequency f32, angle = f32 product, sin and cos f32"
    yield preset_case("pi0", UNIT, compute, steps, upstream=f"{packages()} PI0TimestepEmbeddings", tolerance=2.0**-20)

    def openpi(positions):
        period = 4e-3 * (4.0 / 4e-3) ** torch.linspace(0.0, 1.0, 32, dtype=torch.float64)
        angle = (1.0 / period * 2 * math.pi)[None] * torch.tensor(positions, dtype=torch.float64)[:, None]
        return torch.cat([angle.sin(), angle.cos()], 1).numpy()

    upstream = "transcribed: openpi pi0_pytorch.py create_sinusoidal_pos_embedding"
    yield preset_case("flow-periods", UNIT, openpi, "period, frequency, angle, sin and cos f64", {"dim": 64}, upstream=upstream)


    def interleaved(positions):
        period = 4e-3 * (4.0 / 4e-3) ** (torch.arange(32, dtype=torch.float64) / 32)
        angle = 2 * math.pi * torch.tensor(positions, dtype=torch.float64)[:, None] / period
        return torch.stack([angle.sin(), angle.cos()], -1).flatten(1).numpy()

    upstream = "transcribed from docs/conventions.md"
    yield preset_case("flow-periods-interleaved", UNIT, interleaved, "f64 throughout", {"dim": 64}, upstream=upstream)


def edm():
    """NVlabs/edm and edm2 are no packages: their functions, transcribed."""

    def positional(n, endpoint, swap):
        def compute(positions):
            frequency = torch.arange(n, dtype=torch.float32) / (n - (1 if endpoint else 0))
            frequency = (1 / 10000) ** frequency
            angle = torch.tensor(positions, dtype=torch.float32).ger(frequency)
            first, second = (angle.sin(), angle.cos()) if swap else (angle.cos(), angle.sin())
            return torch.cat([first, second], 1).numpy()

        return compute

    noise = [0, 1, 2.5, 100.75, 999, -1.25]
    steps = "frequency = f32 power of 1/10000, angle = f32 product, sin and cos f32"
    source = "transcribed: NVlabs/edm 008a4e5 training/networks.py PositionalEmbedding"
    yield preset_case("edm-ddpmpp", noise, positional(64, True, True), steps, {"dim": 128}, upstream=f"{source}, SongUNet swaps", tolerance=2.0**-20)
    yield preset_case("edm-adm", noise, positional(64, False, False), steps, {"dim": 128}, upstream=source, tolerance=2.0**-20)
    frequencies = torch.randn(16, generator=torch.Generator().manual_seed(1)) * 2 * np.pi
    phases = torch.rand(16, generator=torch.Generator().manual_seed(2)) * 2 * np.pi

    def fourier(positions):
        y = torch.tensor(positions, dtype=torch.float32).ger(frequencies) + phases
        return (y.cos() * np.sqrt(2)).numpy()

    given = {"dim": 16, "inv_freq": frequencies.double().tolist(), "phase": phases.double().tolist()}
    steps = "angle = f32 product, phase added in f32, cos f32, times sqrt(2) in f32"
    sigma = [-1.5, -0.25, 0, 0.125, 0.75, 1.09375]
    source = "transcribed: NVlabs/edm2 4bf8162 training/networks_edm2.py MPFourier"
    yield preset_case("edm2-fourier", sigma, fourier, steps, given, upstream=source)


def gaussian():
    weights = torch.randn(16, generator=torch.Generator().manual_seed(3)) * 16
    projection = diffusers_embeddings.GaussianFourierProjection(16, log=False)
    projection.weight.data = weights

    def compute(positions):
        return projection(torch.tensor(positions, dtype=torch.float32)).detach().numpy()

    given = {"dim": 32, "inv_freq": weights.double().tolist()}
    steps = "angle = f32 product x W 2 pi, sin and cos f32"
    upstream = f"{DIFFUSERS} GaussianFourierProjection(log=False)"
    yield preset_case("ncsnpp", [-4, -1.5, 0, 0.25, 1, 3.75], compute, steps, given, upstream=upstream)
    flipped = diffusers_embeddings.GaussianFourierProjection(16, log=False, flip_sin_to_cos=True)
    flipped.weight.data = weights
    spec = dict(PRESETS["ncsnpp"]["spec"], dim=32, inv_freq=weights.double().tolist(), order="TRIG_ORDER_COS_SIN")

    def compute_flipped(positions):
        return flipped(torch.tensor(positions, dtype=torch.float32)).detach().numpy()

    assert spec["kind"] == ENCODING
    yield Case("fourier-cos-sin", spec, [-4, -1.5, 0, 0.25, 1, 3.75], upstream, steps, compute_flipped)


def cases():
    for group in (presets, conventions, periods, edm, gaussian):
        yield from group()
