"""What every serving engine's backend needs, without any engine: options, where grammars come from, admission, the
grammar of one request with its futures and failures, and what is counted.

`gramary.runtime.vllm` and `gramary.runtime.sglang` put this behind their engine's interface.
"""

from gramary.runtime.serving.admission import Admission
from gramary.runtime.serving.backend import RequestGrammar, ServingBackend
from gramary.runtime.serving.metrics import WorkerCounts
from gramary.runtime.serving.openai import grammar_for_request, structural_tag_for_request
from gramary.runtime.serving.options import WorkerOptions
from gramary.runtime.serving.source import Compiled, CompileOptions, GrammarSource, Kind, LocalSource, Missing

__all__ = [
    "Admission",
    "CompileOptions",
    "Compiled",
    "GrammarSource",
    "Kind",
    "LocalSource",
    "Missing",
    "RequestGrammar",
    "ServingBackend",
    "WorkerCounts",
    "WorkerOptions",
    "grammar_for_request",
    "structural_tag_for_request",
]
