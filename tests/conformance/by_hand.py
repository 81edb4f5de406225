# SPDX-License-Identifier: Apache-2.0
"""by_hand.py: what models.py cannot observe, and why. A row here is read from the model's source."""

# Configuration classes that no annotation names -> the package whose code takes them.
ADOPTED = {
    "IQuestCoderConfig": ("llama", "LlamaRotaryEmbedding", "LlamaAttention"),
    "InternLM3Config": ("llama", "LlamaRotaryEmbedding", "LlamaAttention"),
    "MimiDecoderConfig": ("mimi", "MimiRotaryEmbedding", "MimiAttention"),
    "MimiEncoderConfig": ("mimi", "MimiRotaryEmbedding", "MimiAttention"),
    "PocketTTSAudioTokenizerDecoderConfig": ("pocket_tts_audio_tokenizer", "PocketTTSAudioTokenizerRotaryEmbedding", "PocketTTSAudioTokenizerAttention"),
    "PocketTTSAudioTokenizerEncoderConfig": ("pocket_tts_audio_tokenizer", "PocketTTSAudioTokenizerRotaryEmbedding", "PocketTTSAudioTokenizerAttention"),
    "SeamlessM4TConfig": ("seamless_m4t", "SeamlessM4TConformerRotaryPositionalEmbedding", "SeamlessM4TConformerSelfAttention"),
    "T5GemmaModuleConfig": ("t5gemma", "T5GemmaRotaryEmbedding", "T5GemmaSelfAttention"),
    "Wav2Vec2BertConfig": ("wav2vec2_bert", "Wav2Vec2BertRotaryPositionalEmbedding", "Wav2Vec2BertSelfAttention"),
    "Wav2Vec2ConformerConfig": ("wav2vec2_conformer", "Wav2Vec2ConformerRotaryPositionalEmbedding", "Wav2Vec2ConformerSelfAttention"),
}

TWO_KINDS = {"num_hidden_layers": 2, "layer_types": ["full_attention", "sliding_attention"]}

CONFORMER = {"position_embeddings_type": "rotary"}

# What a class needs beside its defaults, where these contradict each other or do not rotate.
NEEDED = {
    "dbrx": {"attn_config": {"clip_qkv": 8, "rope_theta": None}},
    "esm": {"position_embedding_type": "rotary"},
    "exaone4": {"sliding_window": 4096},
    "glm4_moe": {"head_dim": 128},
    "glm4v_moe_text": {"head_dim": 128, "partial_rotary_factor": 0.5},
    "glm4v_text": {"partial_rotary_factor": 0.5},
    "glm_image_text": {"partial_rotary_factor": 0.5},
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128},
    "laguna": TWO_KINDS,
    "mellum": TWO_KINDS,
    "ministral": {"head_dim": 128},
    "nemotron": {"num_key_value_heads": 8},
    "qwen3_omni_moe_text": {"head_dim": 128},
    "seamless_m4t": CONFORMER,
    "step3p5": TWO_KINDS,
    "wav2vec2-bert": CONFORMER,
    "wav2vec2-conformer": CONFORMER,
    "zamba2": {"use_mem_rope": True},
    "qwen4_exp_text": {"indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 256, "indexer_budget": 64, "indexer_compress_ratio": 4},
}

# Pairings of models whose attention layer does not run alone.
READ = {
    "clvp_encoder": ("HALF_SPLIT", "the layer makes its own table"),
    "neucodec": ("HALF_SPLIT", "the layer turns every head by its number, whatever the token"),
    "seamless_m4t": ("HALF_SPLIT", "a method rotates the states before they are projected"),
    "wav2vec2-bert": ("HALF_SPLIT", "a method rotates the states before they are projected"),
    "wav2vec2-conformer": ("HALF_SPLIT", "a method rotates the states before they are projected"),
    "xcodec2": ("HALF_SPLIT", "the layer turns every head by its number, whatever the token"),
}

INTERLEAVED = {"pairing": "INTERLEAVED"}
GPTJ = INTERLEAVED | {"observed": "source: the class makes its own table", "theta": 10000.0, "theta_keys": [], "scales": False, "partial_keys": ["rotary_dim"]}
GPTJ |= {"parity": ["FLOAT32_POW", "FLOAT32", "FLOAT32", "FLOAT32"]}
GPTJ |= {"rotary_dim": 64, "hidden": 4096, "hidden_keys": ["hidden_size", "n_embd"], "heads": 16, "heads_keys": ["num_attention_heads", "n_head"], "head_dim_keys": ["head_dim"]}

KIMI = {"observed": "source: its files use DeepSeek V3's class", "pairing": "INTERLEAVED", "pairing_out": "HALF_SPLIT", "rope_interleave": True}
KIMI |= {"parity": ["FLOAT32_POW", "FLOAT32", "MODEL", "MODEL"]}
KIMI |= {"theta": 10000.0, "theta_keys": ["rope_theta"], "latent": [128, 64], "head_dim_keys": ["head_dim"], "head_dim": 64}

ROFORMER = INTERLEAVED | {"observed": "source: the class makes its own table", "theta": 10000.0, "theta_keys": [], "scales": False}
ROFORMER |= {"hidden": 768, "hidden_keys": ["hidden_size"], "heads": 12, "heads_keys": ["num_attention_heads"], "head_dim_keys": []}

EXAONE4 = {"observed": "source: its configuration is renamed exaone4", "pairing": "HALF_SPLIT", "layers": 32, "still": ["full_attention"]}
EXAONE4 |= {"layer_pattern": [*["sliding_attention"] * 3, "full_attention"], "theta": 10000.0, "theta_keys": ["rope_theta"]}
EXAONE4 |= {"parity": ["FLOAT32_POW", "FLOAT32", "MODEL", "MODEL"]}
EXAONE4 |= {"hidden": 4096, "hidden_keys": ["hidden_size"], "heads": 32, "heads_keys": ["num_attention_heads"], "head_dim_keys": ["head_dim"]}

# The first layer, and then every sixth.
MIMO = {"layer_pattern": ["full_attention" if i == 0 or (i + 1) % 6 == 0 else "sliding_attention" for i in range(48)]}

# Sliding layers have the rotation "main", the others "compress". Of a dictionary for all layers only
# "compress" has the scaling, without the amplitude of yarn; its base and share are not read.
SPARSE, HEAVY = "compressed_sparse_attention", "heavily_compressed_attention"
V4 = {"head_dim_keys": ["head_dim"], "head_dim": 512, "partial_keys": ["partial_rotary_factor", "qk_rope_head_dim"], "partial_in_dictionary": True}
V4 |= {"partial": 0.125, "last_lanes": True}
V4_MAIN = {"name": "main", "layer_types": ["sliding_attention"], "theta": 10000.0, "theta_keys": ["rope_theta"], "scales": False} | V4
V4_COMPRESS = {"name": "compress", "layer_types": [SPARSE, HEAVY], "theta": 160000.0, "theta_keys": ["compress_rope_theta"]} | V4
V4_COMPRESS |= {"yarn_attention_factor": 1.0}
DEEPSEEK_V4 = INTERLEAVED | {"layers": 43}
DEEPSEEK_V4 |= {"first_layers": [HEAVY, HEAVY], "layer_pattern": [HEAVY, SPARSE], "kinds": [V4_MAIN, V4_COMPRESS]}
DEEPSEEK_V4 |= {"layer_codes": {"key": "compress_ratios", "numbers": [0, 4, 128], "kinds": ["sliding_attention", SPARSE, HEAVY]}}
DEEPSEEK_V4 |= {"flat_scaling_only": True}

ROTARY_CONFORMER = {"switch": {"key": "position_embeddings_type", "value": "rotary"}, "still": []}

# What a model calls the axes of its positions, in their order, where that is not row, column.
AXES = {"gemma4_vision": ["column", "row"]}

# Rows, or fields of rows, for what is not observed.
BY_HAND = {
    "bamba": {"attention_list": "attn_layer_indices"},
    "codegen": GPTJ,
    "gptj": GPTJ,
    "clvp_encoder": {"unread": "its width is at least 32 lanes and otherwise that of a projection"},
    "cohere2_moe": {"rope_scaling": False, "scales": True},
    "deepseek_v4": DEEPSEEK_V4,
    "dots3_note_text": {"unread": "its kinds of layers have heads of different shapes"},
    "esm": {"switch": {"key": "position_embedding_type", "value": "rotary"}, "still": []},
    "exaone4": {"still": ["full_attention"]},
    "exaone4_5_text": EXAONE4,
    "exaone_moe": {"still": ["full_attention"]},
    "falcon": {"hidden": 4544, "hidden_keys": ["hidden_size", "n_embed"], "heads": 71, "heads_keys": ["num_attention_heads", "n_head"], "head_dim": 0},
    "hunyuan_v1_dense": {"ntk_alpha": True},
    "hunyuan_v1_moe": {"ntk_alpha": True},
    "kimi_k2": KIMI,
    "longcat_flash": {"latent": [128, 64], "partial": 0},
    "mimo_v2_flash": MIMO,
    "mistral_large4_text": {"latent": [64, 64], "no_rope_interval": 4, "partial": 0},
    "glm4v_text": {"partial": 0},
    "glm_image_text": {"partial": 0},
    "granite_swa": {"layer_lists": ["layer_rope_theta"]},
    "granitemoe_swa": {"layer_lists": ["layer_rope_theta"]},
    "kolibri1": {"still": ["full_attention"]},
    "llama4_text": {"no_rope_interval": 4},
    "molmo2_text": {"layer_lists": ["rope_scaling_layers"]},
    "muse_glimmer_text": {"layer_lists": ["layer_rope_theta"], "no_rope_interval": 4, "no_rope_from_last": True},
    "muse_spark_text": {"layer_lists": ["layer_rope_theta"], "no_rope_interval": 4, "no_rope_from_last": True},
    "roformer": ROFORMER,
    "seamless_m4t": ROTARY_CONFORMER,
    "smollm3": {"no_rope_interval": 4},
    "wav2vec2-bert": ROTARY_CONFORMER,
    "wav2vec2-conformer": ROTARY_CONFORMER,
    "zamba2": {"switch": {"key": "use_mem_rope", "value": True}, "still": []},
}

# What to do for a model_type that is not read from its file (hf_towers.py compares it). HINTED: one thing beside the file makes it
# right. REMEDIES: Phasor refuses the file, and the spec must say all. NO_ROTATION: why there is nothing.
HINTED = {
    "clvp_encoder": "`pairing` HALF_SPLIT, `rope_theta` 10000, and `rotary_dim`: the larger of 32 and projection_dim / (2 num_attention_heads)",
    "qwen3_omni_moe": "`sub_config` `thinker_config.text_config`, or another part",
}
NEIGHBOURS = "`pairing` INTERLEAVED, `axes` 2, `axis_rule` AXIAL, and the head_dim and rope_theta of its class; positions are columns and rows"
SCALED = ", in global layers times window_size / the grid's width"
CENTRES = "preset `dinov3` with its head_dim and `max_period` (its rope_theta); positions are the centres of patches in [-1, 1]"
OF_EACH_KIND = "a spec for each kind of layers, with the values of its rope_parameters"
COMPASS = OF_EACH_KIND + " (`axes` 3, `axis_rule` MROPE_INTERLEAVED, [24, 20, 20] without an mrope_section)"
DOTS = OF_EACH_KIND + " for the lanes that turn (`pairing` INTERLEAVED, `pairing_out` HALF_SPLIT)"
REMEDIES = {
    "cohere_compass_text": COMPASS,
    "dinov3_vit": CENTRES,
    "dots3_note_text": DOTS,
    "edgetam_video": NEIGHBOURS,
    "efficientloftr": "`pairing` INTERLEAVED, `axes` 2, `axis_rule` FREQUENCY_MAJOR, `head_dim`: its hidden_size; positions are rows and columns, from 1",
    "eomt_dinov3": CENTRES,
    "llama4_vision_model": NEIGHBOURS + ", from 1",
    "sam2_video": NEIGHBOURS,
    "sam3_tracker_video": NEIGHBOURS,
    "sam3_vit_model": NEIGHBOURS + SCALED,
    "sapiens2": CENTRES,
}
NO_ROTATION = {"hunyuan_vl_text": "the sections of the two lanes of a pair do not agree"}

# Classes of transformers that say rotary or rope and that no model_type above has.
OTHER_CLASSES = {
    r"(edgetam_video|sam2_video|sam3|sam3_tracker_video)\.\w+RoPE(Self|Cross)?Attention": "an attention layer, which takes the tables of another class",
    r"esmfold2\.EsmFold2RotaryEmbedding": "a part without a model_type: `axes` 4, `axis_rule` AXIAL, `axes_dim`, `axes_theta`; positions are x, y, z and a number",
    r"evolla\.EvollaSaProtRotaryEmbedding": "a part without a model_type: preset esm-2",
    r"musicflamingo\.MusicFlamingoRotaryEmbedding": "no rotation of attention: turns features of sound by times in seconds",
    r"vjepa2\.VJEPA2RopeAttention": "no rotation: the lanes of a pair turn by different angles",
}
