"""The wire: `gramary.v1` over gRPC.

`server.WireServer` serves a `node.Node`, `client.GrpcPeer` asks another node, `security` says who may do what, and
`verifier` checks what others send. The protocol itself is in protos/gramary/v1, its generated stubs in `pb`.
"""
