"""Router replay (R3): training sends each token to the experts that generation chose for it.

    engine ── RouteRecorder ──▶ routes of each row ──▶ column ``routed_experts`` ──▶ plane
    plane ──▶ policy ranks ── RouteReplayer ──▶ the routers of logprob and training passes
                              MegatronReplayer: the same by megatron-core's own hooks

Without it a token's experts differ between generation and training whenever rounding or newer
weights change the order of two nearly equal router scores, and with them its logprob. Source:
Ma et al. 2025, "Stabilizing MoE Reinforcement Learning by Aligning Training and Inference Routers",
arXiv 2510.11370.

route_format   the column's layers, experts, dtype, and its value for unknown experts
routers        the router modules of a model of transformers
recorder       collects what they choose
replayer       makes them choose what was recorded
column         joins the turns of a row
megatron       drives the routers of megatron-core
trace          writes a hash of each token's experts where they are made, fetched and replayed
trace_records  the lines of such a trace
check          proves from a trace that what was replayed is what was recorded
"""
