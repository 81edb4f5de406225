# SPDX-License-Identifier: Apache-2.0
"""Cases of the encodings of diffusers that the other families do not run: timesteps, Fourier
features and boxes. walk.py says which ones are left."""

import types

import torch
from diffusers.models import embeddings
from diffusers.models.autoencoders import autoencoder_kl_mochi
from diffusers.models.controlnets import controlnet_z_image
from diffusers.models.transformers import (
    stable_audio_transformer,
    transformer_bria,
    transformer_bria_fibo,
    transformer_bria_fibo2,
    transformer_ideogram4,
    transformer_kandinsky,
    transformer_krea2,
    transformer_longcat_audio_dit,
    transformer_minimax_music3,
    transformer_qwenimage,
    transformer_qwenimage21,
    transformer_rfd4_proteina,
    transformer_skyreels_v2,
    transformer_stable_audio3,
    transformer_z_image,
)
from diffusers.models.unets.unet_stable_cascade import StableCascadeUNet
from diffusers.pipelines.shap_e import renderer
from diffusers.pipelines.stable_audio import modeling_stable_audio
from diffusers.pipelines.stable_audio_3 import modeling_stable_audio_3

from case import ENCODING
from diffusers_rope import alike, case
from sinusoid import encoding
from timestep import F32, STEPS, UNIT

F64 = "frequency, angle, sin and cos f64, rounded to f32"


def of(function):
    """Positions as a tensor of f32."""
    return lambda positions: function(torch.tensor(positions, dtype=torch.float32)).detach().numpy()


class Kept(torch.nn.Module):
    """Stands for the first layer after an embedding, and keeps what it gets."""

    def __init__(self):
        super().__init__()
        self.weight, self.seen = torch.zeros(1), None

    def forward(self, x):
        self.seen = x
        return x


def before(layer, model, *more):
    """What the model computes for its layer of that name."""
    kept = Kept()
    setattr(model, layer, kept)

    def compute(t):
        try:
            model(t, *more)
        except RuntimeError:  # the layers behind it have other widths
            pass
        return kept.seen.reshape(len(t), -1)

    return of(compute)


def timesteps():
    plain = encoding("COS_SIN", "CONCATENATED", 32)
    modules = (transformer_z_image, controlnet_z_image, transformer_bria_fibo2)
    compute = alike(
        *(of(lambda t, m=m: m.TimestepEmbedder.timestep_embedding(t, 32)) for m in modules),
        of(embeddings.Timesteps(32, True, 0)),
        before("in_layer", transformer_kandinsky.Kandinsky5TimeEmbeddings(32, 8)),
        apart=2.0**-12,
    )
    yield case("timesteps", plain, STEPS, "Timesteps, TimestepEmbedder, Kandinsky5TimeEmbeddings", F32, compute)
    bria = (transformer_bria.BriaTimesteps, transformer_bria_fibo.BriaFiboTimesteps)
    compute = alike(*(of(cls(32, True, 0, time_theta=2000)) for cls in bria))
    yield case("timesteps-bria", plain | {"rope_theta": 2000}, STEPS, "BriaTimesteps, BriaFiboTimesteps", F32, compute)
    thousand = plain | {"position_scale": 1000}
    compute = alike(
        before("linear_1", transformer_krea2.Krea2TimestepEmbedding(32, 8), torch.float32),
        of(transformer_qwenimage21.QwenImage21TemporalTimesteps(32)),
        of(lambda t: transformer_qwenimage.get_timestep_embedding(t, 32, True, 0, 1000)),
        apart=2.0**-12,
    )
    names = "Krea2TimestepEmbedding, QwenImage21TemporalTimesteps, transformer_qwenimage get_timestep_embedding"
    yield case("timesteps-thousand", thousand, UNIT, names, F32, compute)
    shifted = encoding("SIN_COS", "CONCATENATED", 32, downscale_freq_shift=1)
    compute = of(lambda t: transformer_ideogram4._sinusoidal_embedding(t, 32))
    yield case("timesteps-ideogram", shifted, STEPS, "transformer_ideogram4 _sinusoidal_embedding", F32, compute)
    compute = of(transformer_longcat_audio_dit.AudioDiTSinusPositionEmbedding(32))
    yield case("timesteps-audio-dit", shifted | {"position_scale": 1000}, UNIT, "AudioDiTSinusPositionEmbedding", F32, compute)
    ratio = types.SimpleNamespace(config=types.SimpleNamespace(timestep_ratio_embedding_dim=32))
    compute = of(lambda t: StableCascadeUNet.get_timestep_ratio_embedding(ratio, t))
    yield case("timesteps-cascade", shifted | {"position_scale": 10000}, UNIT, "StableCascadeUNet.get_timestep_ratio_embedding", F32, compute)
    compute = of(lambda t: transformer_rfd4_proteina.get_rfd4_time_embedding(t, 32))
    rfd4 = shifted | {"rope_theta": 2000, "position_scale": 2000}
    yield case("timesteps-rfd4", rfd4, UNIT, "get_rfd4_time_embedding", F32, compute)
    compute = of(transformer_skyreels_v2.SkyReelsV2Timesteps(32, True))
    yield case("timesteps-skyreels", plain, STEPS, "SkyReelsV2Timesteps", F64, compute)


def fourier():
    steps = "angle = f32 product with 2 pi, sin and cos f32"
    points = [-1.5, -0.25, 0, 0.125, 0.75, 1]
    features = encoding("COS_SIN", "CONCATENATED", 16, family="FREQUENCY_FAMILY_LOG_RANGE", min_freq=0.5, max_freq=10000, downscale_freq_shift=1)
    features |= {"frequency_unit": "FREQUENCY_UNIT_TURNS"}
    del features["rope_theta"]
    seconds = modeling_stable_audio_3.StableAudio3DurationEmbedder(8, 16)
    seconds.linear = Kept()

    def duration(positions):
        model = seconds
        model(torch.tensor(positions, dtype=torch.float32) * 384)
        return model.linear.seen.numpy()

    unit = [0, 0.0009765625, 0.125, 0.5, 1]
    compute = alike(of(transformer_stable_audio3.StableAudio3ExpoFourierFeatures(16)), duration, apart=2.0**-6)
    yield case("fourier-expo", features, unit, "StableAudio3ExpoFourierFeatures, StableAudio3DurationEmbedder", steps, compute, tolerance=2.0**-18)

    weights = torch.randn(8, generator=torch.Generator().manual_seed(5))
    learned = {"kind": ENCODING, "family": "FREQUENCY_FAMILY_EXPLICIT", "inv_freq": weights.double().tolist(), "dim": 16}
    learned |= {"frequency_unit": "FREQUENCY_UNIT_TURNS", "arrangement": "ARRANGEMENT_CONCATENATED"}
    projection = stable_audio_transformer.StableAudioGaussianFourierProjection(8, log=False)
    projection.weight.data = weights
    positional = modeling_stable_audio.StableAudioPositionalEmbedding(16)
    positional.weights.data = weights
    # The first column is the time itself.
    compute = alike(of(projection), of(lambda t: positional(t)[:, 1:]), apart=2.0**-18)
    names = "StableAudioGaussianFourierProjection, StableAudioPositionalEmbedding"
    yield case("fourier-learned", learned | {"order": "TRIG_ORDER_SIN_COS"}, points, names, steps, compute)
    music = transformer_minimax_music3.MiniMaxMusic3FourierEmbedding(16)
    music.weight.data = weights[:, None]
    yield case("fourier-music", learned | {"order": "TRIG_ORDER_COS_SIN"}, points, "MiniMaxMusic3FourierEmbedding", steps, of(music))

    # Of every channel two octaves, after the channels themselves.
    octaves = learned | {"inv_freq": [64, 128] * 3, "order": "TRIG_ORDER_SIN_COS", "dim": 12, "axes": 3, "grouping": "AXIS_GROUPING_COMPONENT_MAJOR"}
    channels = [[0, 0, 0], [0.5, 0, 0], [0, 0.25, 0], [0, 0, 0.001953125], [-0.75, 0.375, 0.9375]]
    mochi = autoencoder_kl_mochi.FourierFeatures()

    def of_channels(positions):
        return mochi(torch.tensor(positions)[:, :, None, None, None])[:, 3:, 0, 0, 0].numpy()

    yield case("fourier-channels", octaves, channels, "autoencoder_kl_mochi.py FourierFeatures", steps, of_channels)
    # The coordinates first, which are left out here; upstream counts octave, axis; here axis, octave.
    def of_points(positions):
        rows = renderer.posenc_nerf(torch.tensor(positions), 0, 4)[:, 3:]
        return rows.reshape(-1, 2, 4, 3).transpose(-1, -2).flatten(1).numpy()

    points = [[0.0, 0, 0], [0.5, 0, 0], [0, 0.25, 0], [0, 0, 0.125], [-0.75, 0.375, 0.9375]]
    octaves = {"kind": ENCODING, "family": "FREQUENCY_FAMILY_EXPLICIT", "inv_freq": [1, 2, 4, 8] * 3, "dim": 24, "axes": 3}
    octaves |= {"order": "TRIG_ORDER_SIN_COS", "arrangement": "ARRANGEMENT_CONCATENATED", "grouping": "AXIS_GROUPING_COMPONENT_MAJOR"}
    yield case("nerf", octaves, points, "shap_e posenc_nerf, its columns transposed", "angle f32, cosine = f32 sine of angle + pi / 2", of_points)
    yield boxes()


def boxes():
    """Columns: upstream counts frequency, component, corner; here corner, component, frequency."""
    spec = {"kind": ENCODING, "family": "FREQUENCY_FAMILY_LOG_RANGE", "min_freq": 1, "max_freq": 100, "dim": 64, "axes": 4}
    spec |= {"order": "TRIG_ORDER_SIN_COS", "arrangement": "ARRANGEMENT_CONCATENATED", "grouping": "AXIS_GROUPING_AXIS_MAJOR"}
    corners = [[0, 0, 1, 1], [0.25, 0.5, 0.75, 1], [0.125, 0.0625, 0.9375, 0.375]]

    def compute(positions):
        rows = embeddings.get_fourier_embeds_from_boundingbox(8, torch.tensor(positions)[None])[0]
        return rows.reshape(-1, 8, 2, 4).permute(0, 3, 2, 1).flatten(1).numpy()

    steps = "frequency = f32 power of 100, angle f32, sin and cos f32"
    return case("boxes", spec, corners, "get_fourier_embeds_from_boundingbox, its columns transposed", steps, compute)


def cases():
    yield from timesteps()
    yield from fourier()
