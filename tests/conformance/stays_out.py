# SPDX-License-Identifier: Apache-2.0
"""stays_out.py: classes and functions of diffusers and timm that walk.py finds and no case runs, each
with its reason. The key is a regular expression over `file.name`. A reason that begins with
"refused" says what to do instead; today nothing is refused."""

LANES = "the two lanes of a pair turn by different angles: no rotation"

STAYS_OUT = {
    "diffusers": {
        r".*\.\w*Snake(1d|Beta)": "an activation",
        r"autoencoder_same\.FeedForward": "an activation",
        r"vocoder\.(kaiser_sinc_filter1d|UpSample1d)": "a filter of sound",
        r"cam_utils\._rot_[xy]|camera\.create_pan_cameras": "turns of a camera",
        r"transformer_sana_wm\.compute_(fx_from_fov_xi|up_lat_map)": "angles of a camera's rays",
        r"transformer_wan_animate_2\.pad_freqs": "pads a table with ones",
        r"transformer_ernie_image\.(rope|ErnieImageEmbedND3|ErnieImageSingleStreamAttnProcessor)": LANES,
    },
    "timm": {
        r"(bottleneck_attn|halo_attn)\.PosEmbedRel": "a learned table of relative positions",
        r"pos_embed\.resample_abs_pos_embed(_nhwc)?": "resamples a learned table",
        r"(nest|vision_transformer)\.resize_pos_embed": "resamples a learned table",
        r"qwen3_vit\.resample_pos_embed_grid": "resamples a learned table",
        r"eva\.vit_\w+": "makes a whole model, of RotaryEmbeddingCat or RotaryEmbeddingMixed",
    },
}
