"""The vLLM backend `gramary`.

    pip install 'gramary[vllm]'
    vllm serve MODEL --structured-outputs-config '{"backend": "gramary"}'

vLLM loads `register` in each of its processes, through the entry point `vllm.general_plugins`; docs/vllm.md is the
manual. Nothing of vLLM is imported before that.
"""

from __future__ import annotations

NAME = "gramary"
"""What the backend is called in vLLM's configuration."""


def register() -> None:
    """Make the backend known to the vLLM of this process. May be called any number of times; never raises.

    Where this vLLM's hooks are not what they must be, an error says so and vLLM stays as it is: it then refuses the
    name, rather than run requests without their constraint.
    """
    from gramary.runtime.vllm.hooks import install

    install()
