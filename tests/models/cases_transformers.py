"""Architectures of `transformers`, with random weights and tiny sizes."""

from typing import Any

import torch
import transformers

from tests.models.case import Case, Input, mask, position, tokens
from tests.models.static_cache import StaticCacheStep
from tests.models.torchvision_ops import make_torchvision_importable

make_torchvision_importable()  # transformers reads it, where it is installed

VOCABULARY = 96
HIDDEN = 32
POSITIONS = 16
ENCODER, DECODER, CACHE = "encoder", "decoder", "decoder, static cache"
SEQ2SEQ, VISION, AUDIO = "encoder-decoder", "vision", "audio"
STATE_SPACE, EXPERTS, MULTIMODAL, OTHER = "state space", "mixture of experts", "multimodal", "other"

PARTS = {"layers": 2, "attention_heads": 4, "ffn_dim": 48}
TINY: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
# Sizes of a sequence: the first two read it in chunks of 4, the others token by token in a loop that export
# unrolls.
SEQUENCES = {"mamba2": (8, 12), "bamba": (8, 12), "rwkv": (4, 6), "recurrent_gemma": (4, 6)}
GROUPED = {**TINY, "num_key_value_heads": 2}
UNCACHED = {"use_cache": False}
BART: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": HIDDEN,
    "max_position_embeddings": 64,
    **{f"{part}_{name}": size for part in ("encoder", "decoder") for name, size in PARTS.items()},
    **UNCACHED,
}
SPEECH: dict[str, Any] = {
    "hidden_size": HIDDEN,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "conv_dim": (16, 16),
    "conv_stride": (5, 2),
    "conv_kernel": (10, 3),
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
}

IDS = Input("input_ids", ("batch", "sequence"), tokens(VOCABULARY))
TEXT = (IDS, Input("attention_mask", ("batch", "sequence"), mask))
PIXELS = (Input("pixel_values", ("batch", 3, 32, 32)),)
SAMPLES = (Input("input_values", ("batch", "samples")),)
SOURCE_AND_TARGET = (*TEXT, Input("decoder_input_ids", ("batch", "target"), tokens(VOCABULARY)))


def cached(heads: int, size: int, layers: int = 2) -> tuple[Input, ...]:
    """Return the arguments of a step with a cache of which 2 positions are in use."""
    layer = ("batch", heads, POSITIONS, size)
    return (
        Input("input_ids", ("batch", "sequence"), tokens(VOCABULARY)),
        Input("filled", (), position(2)),
        Input("keys", layer, count=layers),
        Input("values", layer, count=layers),
    )


def case(
    name: str, kind: str, model: str, options: dict[str, Any], inputs: tuple[Input, ...], **more: Any
) -> Case:
    def build() -> torch.nn.Module:
        model_class = getattr(transformers, model)
        config = model_class.config_class(**{**options, **more})
        made = model_class(config)
        return StaticCacheStep(made) if kind == CACHE else made

    sizes = {"sequence": SEQUENCES[name]} if name in SEQUENCES else {}
    return Case(name, "transformers", kind, build, inputs, sizes)


CASES = (
    # encoders
    case("bert", ENCODER, "BertModel", TINY, TEXT),
    case("roberta", ENCODER, "RobertaModel", TINY, TEXT, pad_token_id=1),
    case("albert", ENCODER, "AlbertModel", TINY, TEXT, embedding_size=16),
    case("electra", ENCODER, "ElectraForPreTraining", TINY, TEXT, embedding_size=16),
    case("distilbert", ENCODER, "DistilBertModel", {}, TEXT, vocab_size=96, dim=32, n_layers=2, n_heads=4,
        hidden_dim=48),
    case("deberta_v2", ENCODER, "DebertaV2Model", TINY, TEXT, relative_attention=True,
        pos_att_type=["p2c", "c2p"]),
    case("mpnet", ENCODER, "MPNetModel", TINY, TEXT),
    case("fnet", ENCODER, "FNetModel", TINY, (IDS,)),
    case("roformer", ENCODER, "RoFormerModel", TINY, TEXT),
    case("modernbert", ENCODER, "ModernBertModel", TINY, TEXT, reference_compile=False),
    case("esm", ENCODER, "EsmModel", TINY, TEXT, mask_token_id=3, position_embedding_type="rotary"),
    case("convbert", ENCODER, "ConvBertModel", TINY, TEXT, embedding_size=32),
    case("squeezebert", ENCODER, "SqueezeBertModel", TINY, TEXT, embedding_size=32),
    case("mobilebert", ENCODER, "MobileBertModel", TINY, TEXT, embedding_size=16, intra_bottleneck_size=16),
    case("nystromformer", ENCODER, "NystromformerModel", TINY, TEXT, num_landmarks=8,
        segment_means_seq_len=8),
    case("funnel", ENCODER, "FunnelModel", {}, TEXT, vocab_size=96, d_model=32, n_head=4, d_head=8,
        d_inner=48, block_sizes=[1, 1], num_decoder_layers=1),
    case("xlnet", ENCODER, "XLNetModel", {}, TEXT, vocab_size=96, d_model=32, n_layer=2, n_head=4, d_inner=48,
        use_mems_eval=False),
    case("longformer", ENCODER, "LongformerModel", TINY, TEXT, attention_window=4),
    case("big_bird", ENCODER, "BigBirdModel", TINY, TEXT, attention_type="original_full"),
    case("perceiver", ENCODER, "PerceiverModel", {}, (Input("inputs", ("batch", "sequence", 24)),),
        num_latents=8, d_latents=32, d_model=24, num_blocks=1, num_self_attends_per_block=2,
        num_self_attention_heads=4, num_cross_attention_heads=4),
    # decoders
    case("gpt2", DECODER, "GPT2LMHeadModel", {}, TEXT, vocab_size=96, n_embd=32, n_layer=2, n_head=4,
        n_positions=64, **UNCACHED),
    case("llama", DECODER, "LlamaForCausalLM", GROUPED, TEXT, **UNCACHED),
    case("qwen3", DECODER, "Qwen3ForCausalLM", GROUPED, TEXT, head_dim=8, **UNCACHED),
    case("gemma3", DECODER, "Gemma3ForCausalLM", GROUPED, TEXT, head_dim=8, num_hidden_layers=3,
        sliding_window=4, layer_types=["sliding_attention", "sliding_attention", "full_attention"],
        **UNCACHED),
    case("bloom", DECODER, "BloomForCausalLM", {}, TEXT, vocab_size=96, hidden_size=32, n_layer=2, n_head=4,
        **UNCACHED),
    case("mpt", DECODER, "MptForCausalLM", {}, TEXT, vocab_size=96, d_model=32, n_layers=2, n_heads=4,
        max_seq_len=64, **UNCACHED),
    case("xglm", DECODER, "XGLMForCausalLM", {}, TEXT, vocab_size=96, d_model=32, num_layers=2,
        attention_heads=4, ffn_dim=48, **UNCACHED),
    # decoders with a static cache
    case("gpt_neox", CACHE, "GPTNeoXForCausalLM", TINY, cached(4, 8)),
    case("mistral", CACHE, "MistralForCausalLM", GROUPED, cached(2, 8), sliding_window=None),
    case("qwen2", CACHE, "Qwen2ForCausalLM", GROUPED, cached(2, 8)),
    case("gemma2", CACHE, "Gemma2ForCausalLM", GROUPED, cached(2, 8), head_dim=8,
        layer_types=["full_attention"] * 2),
    case("phi3", CACHE, "Phi3ForCausalLM", GROUPED, cached(2, 8)),
    case("opt", CACHE, "OPTForCausalLM", {}, cached(4, 8), vocab_size=96, hidden_size=32, num_hidden_layers=2,
        num_attention_heads=4, ffn_dim=48, max_position_embeddings=64, word_embed_proj_dim=32),
    case("falcon", CACHE, "FalconForCausalLM", TINY, cached(1, 8)),
    case("stablelm", CACHE, "StableLmForCausalLM", GROUPED, cached(2, 8)),
    case("olmo2", CACHE, "Olmo2ForCausalLM", GROUPED, cached(2, 8)),
    case("granite", CACHE, "GraniteForCausalLM", GROUPED, cached(2, 8)),
    case("cohere2", CACHE, "Cohere2ForCausalLM", GROUPED, cached(2, 8), layer_types=["full_attention"] * 2),
    case("gptj", CACHE, "GPTJForCausalLM", {}, cached(4, 8), vocab_size=96, n_embd=32, n_layer=2, n_head=4,
        n_positions=64, rotary_dim=4),
    # mixtures of experts
    case("mixtral", EXPERTS, "MixtralForCausalLM", GROUPED, TEXT, num_local_experts=4, **UNCACHED),
    case("qwen2_moe", EXPERTS, "Qwen2MoeForCausalLM", GROUPED, TEXT, num_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=24, shared_expert_intermediate_size=24, **UNCACHED),
    case("deepseek_v3", EXPERTS, "DeepseekV3ForCausalLM", TINY, TEXT, num_key_value_heads=4,
        moe_intermediate_size=24, n_routed_experts=4, num_experts_per_tok=2, n_group=2, topk_group=1,
        kv_lora_rank=16, q_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=8,
        first_k_dense_replace=1, **UNCACHED),
    case("gpt_oss", EXPERTS, "GptOssForCausalLM", GROUPED, TEXT, head_dim=8, num_local_experts=4,
        num_experts_per_tok=2, sliding_window=4, **UNCACHED),
    case("granitemoe", EXPERTS, "GraniteMoeForCausalLM", GROUPED, TEXT, num_local_experts=4, **UNCACHED),
    case("olmoe", EXPERTS, "OlmoeForCausalLM", TINY, TEXT, num_experts=4, num_experts_per_tok=2, **UNCACHED),
    # state spaces and other recurrences
    case("mamba", STATE_SPACE, "MambaForCausalLM", {}, (IDS,), vocab_size=96, hidden_size=32, state_size=8,
        num_hidden_layers=2, **UNCACHED),
    case("mamba2", STATE_SPACE, "Mamba2ForCausalLM", {}, (IDS,), vocab_size=96, hidden_size=32, state_size=8,
        num_hidden_layers=2, num_heads=8, head_dim=8, n_groups=1, chunk_size=4, **UNCACHED),
    case("falcon_mamba", STATE_SPACE, "FalconMambaForCausalLM", {}, (IDS,), vocab_size=96, hidden_size=32,
        state_size=8, num_hidden_layers=2, **UNCACHED),
    case("jamba", STATE_SPACE, "JambaForCausalLM", GROUPED, TEXT, num_experts=2, attn_layer_period=2,
        attn_layer_offset=1, expert_layer_period=2, expert_layer_offset=1, use_mamba_kernels=False,
        mamba_d_state=8, **UNCACHED),
    case("bamba", STATE_SPACE, "BambaForCausalLM", GROUPED, TEXT, attn_layer_indices=[1], mamba_n_heads=8,
        mamba_d_head=8, mamba_d_state=8, mamba_chunk_size=4, **UNCACHED),
    case("rwkv", STATE_SPACE, "RwkvForCausalLM", {}, (IDS,), vocab_size=96, hidden_size=32,
        attention_hidden_size=32, num_hidden_layers=2, intermediate_size=48, **UNCACHED),
    case("recurrent_gemma", STATE_SPACE, "RecurrentGemmaForCausalLM", GROUPED, TEXT, num_hidden_layers=3,
        lru_width=32, attention_window_size=8, head_dim=8, **UNCACHED),
    # encoder-decoders
    case("t5", SEQ2SEQ, "T5ForConditionalGeneration", {}, SOURCE_AND_TARGET, vocab_size=96, d_model=32,
        d_kv=8, d_ff=48, num_layers=2, num_heads=4, **UNCACHED),
    case("bart", SEQ2SEQ, "BartForConditionalGeneration", BART, SOURCE_AND_TARGET),
    case("marian", SEQ2SEQ, "MarianMTModel", BART, SOURCE_AND_TARGET, pad_token_id=0),
    case("m2m_100", SEQ2SEQ, "M2M100ForConditionalGeneration", BART, SOURCE_AND_TARGET),
    case("switch_transformers", SEQ2SEQ, "SwitchTransformersForConditionalGeneration", {}, SOURCE_AND_TARGET,
        vocab_size=96, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_decoder_layers=2, num_heads=4,
        num_experts=4, num_sparse_encoder_layers=1, num_sparse_decoder_layers=1, **UNCACHED),
    # vision
    case("vit", VISION, "ViTModel", TINY, PIXELS, image_size=32, patch_size=8),
    case("deit", VISION, "DeiTModel", TINY, PIXELS, image_size=32, patch_size=8),
    case("beit", VISION, "BeitModel", TINY, PIXELS, image_size=32, patch_size=8,
        use_relative_position_bias=True),
    case("dinov2", VISION, "Dinov2Model", TINY, PIXELS, image_size=32, patch_size=8),
    case("swin", VISION, "SwinModel", {}, PIXELS, image_size=32, patch_size=2, embed_dim=16, depths=[2, 2],
        num_heads=[2, 4], window_size=4),
    case("convnextv2", VISION, "ConvNextV2Model", {}, PIXELS, hidden_sizes=[16, 32], depths=[1, 1],
        num_stages=2),
    case("resnet", VISION, "ResNetModel", {}, PIXELS, embedding_size=16, hidden_sizes=[16, 32],
        depths=[1, 1]),
    case("segformer", VISION, "SegformerForSemanticSegmentation", {},
        (Input("pixel_values", ("batch", 3, 64, 64)),), num_encoder_blocks=2, depths=[1, 1], sr_ratios=[4, 2],
        hidden_sizes=[16, 32], patch_sizes=[7, 3], strides=[4, 2], num_attention_heads=[1, 2],
        mlp_ratios=[2, 2], decoder_hidden_size=16),
    case("poolformer", VISION, "PoolFormerModel", {}, (Input("pixel_values", ("batch", 3, 64, 64)),),
        hidden_sizes=[8, 16, 16, 16], depths=[1, 1, 1, 1]),
    case("videomae", VISION, "VideoMAEModel", TINY, (Input("pixel_values", ("batch", 4, 3, 32, 32)),),
        image_size=32, patch_size=8, num_frames=4),
    # audio
    case("whisper", AUDIO, "WhisperForConditionalGeneration", BART,
        (Input("input_features", ("batch", 16, 40)),
        Input("decoder_input_ids", ("batch", "target"), tokens(VOCABULARY))), num_mel_bins=16,
        max_source_positions=20, max_target_positions=32, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None),
    case("wav2vec2", AUDIO, "Wav2Vec2Model", SPEECH, SAMPLES),
    case("hubert", AUDIO, "HubertModel", SPEECH, SAMPLES),
    case("wavlm", AUDIO, "WavLMModel", SPEECH, SAMPLES),
    case("audio_spectrogram_transformer", AUDIO, "ASTModel", TINY,
        (Input("input_values", ("batch", 32, 16)),), max_length=32, num_mel_bins=16, patch_size=8,
        frequency_stride=8, time_stride=8),
    case("encodec", AUDIO, "EncodecModel", {}, (Input("input_values", ("batch", 1, 640)),), num_filters=4,
        hidden_size=16, codebook_size=32, codebook_dim=16, upsampling_ratios=[4, 2], num_lstm_layers=1,
        target_bandwidths=[60.0]),
    # text and images, series, decisions
    case("clip", MULTIMODAL, "CLIPModel", {}, (*TEXT, *PIXELS), projection_dim=16,
        text_config={**TINY, "eos_token_id": 2}, vision_config={**TINY, "image_size": 32, "patch_size": 8}),
    case("siglip", MULTIMODAL, "SiglipModel", {}, (IDS, *PIXELS), text_config={**TINY, "projection_size": 32},
        vision_config={**TINY, "image_size": 32, "patch_size": 8}),
    case("vilt", MULTIMODAL, "ViltModel", TINY, (*TEXT, *PIXELS), image_size=32, patch_size=8,
        max_image_length=-1),
    case("patchtst", OTHER, "PatchTSTModel", {}, (Input("past_values", ("batch", 32, 2)),),
        num_input_channels=2, context_length=32, patch_length=8, patch_stride=8, d_model=16,
        num_attention_heads=2, num_hidden_layers=2, ffn_dim=32),
    case("decision_transformer", OTHER, "DecisionTransformerModel", {},
        (Input("states", ("batch", "sequence", 5)), Input("actions", ("batch", "sequence", 3)),
        Input("rewards", ("batch", "sequence", 1)), Input("returns_to_go", ("batch", "sequence", 1)),
        Input("timesteps", ("batch", "sequence"), tokens(30)),
        Input("attention_mask", ("batch", "sequence"), mask)), state_dim=5, act_dim=3, hidden_size=32,
        n_layer=2, n_head=4, n_positions=64, max_ep_len=32),
)  # fmt: skip
