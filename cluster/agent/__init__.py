"""The node agent: one process a node that owns the store, compiles, serves gRPC, and keeps company with its peers.

`gramary serve` is the same for one node alone; `gramary agent` joins others. `running.Agent` puts the parts together,
`node.AgentNode` is what the wire serves, `storage.AgentStore` what placement stores to.
"""
