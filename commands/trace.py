"""`workbench trace …`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .shared import Experts, Format, Json, Lenient, Seed, show, warn

if TYPE_CHECKING:
    from ..traces import ExpertTrace

app = typer.Typer(help="Look at, convert, synthesise or capture traces.", no_args_is_help=True)
TraceOut = Annotated[Path, typer.Argument(metavar="OUT", help="The trace file to write (.safetensors).")]


@app.command(epilog="Example: workbench trace info traces/data/small-olmoe-stdlib.safetensors")
def info(
    file: Annotated[Path, typer.Argument(help="A trace of any known format.")],
    format: Format = None,
    num_experts: Experts = None,
    lenient: Lenient = False,
    json: Json = False,
) -> None:
    """Shape, reuse against chance, load skew, entropy, working set, guesses, and what is odd about it."""
    from ..workbench.trace_files import describe_trace

    found = describe_trace(file, format=format, num_experts=num_experts, lenient=lenient)
    show(found.to_dict(), found.lines(), json)


@app.command(epilog="Example: workbench trace convert routing.jsonl trace.safetensors --permute steps --seed 1")
def convert(
    file: Annotated[Path, typer.Argument(help="A trace of any known format.")],
    out: TraceOut,
    permute: Annotated[str | None, typer.Option(help="steps: put them into a random order (the control).")] = None,
    seed: Seed = 0,
    format: Format = None,
    num_experts: Experts = None,
    lenient: Lenient = False,
    json: Json = False,
) -> None:
    """Write a trace of any known format as our own, which is memory-mapped when read."""
    from ..workbench.trace_files import convert_trace

    trace = convert_trace(
        file, out, format=format, num_experts=num_experts, lenient=lenient, permute=permute, seed=seed
    )
    show_trace(trace, out, json)


@app.command(epilog="Example: workbench trace synth new.safetensors --model olmoe-1b-7b --tokens 200 --reuse 0.3")
def synth(
    out: TraceOut,
    model: Annotated[str | None, typer.Option(help="Take the shape of this model.")] = None,
    layers: Annotated[int | None, typer.Option(min=1, help="MoE layers.")] = None,
    experts: Annotated[int | None, typer.Option(min=1, help="Routed experts a layer.")] = None,
    top_k: Annotated[int | None, typer.Option(min=1, help="Experts a token uses in a layer.")] = None,
    tokens: Annotated[int, typer.Option(min=1, help="Tokens in all.")] = 1000,
    sequences: Annotated[int, typer.Option(min=1, help="Sequences that they are divided into.")] = 1,
    prefill: Annotated[int, typer.Option(min=0, help="Prompt tokens of each sequence.")] = 0,
    reuse: Annotated[float | None, typer.Option(help="Share the next token uses again. (default: chance)")] = None,
    skew: Annotated[float, typer.Option(help="Exponent of the load over experts; 0 is even.")] = 0.0,
    cross_layer: Annotated[float, typer.Option(help="How far a layer decides the next one, 0 to 1.")] = 0.0,
    guess_recall: Annotated[float | None, typer.Option(help="Share of the true experts that the guesses hold.")] = None,
    lookahead: Annotated[int, typer.Option(min=1, help="Layers that guesses look ahead.")] = 1,
    guesses: Annotated[int | None, typer.Option(min=1, help="Experts guessed a layer. (default: top-k)")] = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:  # fmt: skip
    """Make a trace whose statistics are those asked for; it is marked as synthetic."""
    from ..workbench.trace_files import synthesise_trace

    trace = synthesise_trace(
        out, model=model, num_layers=layers, num_experts=experts, top_k=top_k, num_tokens=tokens,
        num_sequences=sequences, prefill_tokens=prefill, reuse=reuse, skew=skew, cross_layer=cross_layer,
        guess_recall=guess_recall, lookahead=lookahead, guesses=guesses, seed=seed,
    )  # fmt: skip
    show_trace(trace, out, json)


@app.command(epilog="Example: workbench trace capture path/to/model book.txt --out trace.safetensors")
def capture(
    model: Annotated[str, typer.Argument(help="Folder of a Hugging Face MoE model (OLMoE, Mixtral, Qwen-MoE, …).")],
    texts: Annotated[list[Path], typer.Argument(metavar="TEXT...", help="Text files to take prompts from.")],
    out: Annotated[Path, typer.Option(help="The trace file to write (.safetensors).")],
    sequences: Annotated[int, typer.Option(min=1, help="Prompts to run.")] = 8,
    prompt: Annotated[int, typer.Option(min=1, help="Tokens of each prompt.")] = 64,
    decode: Annotated[int, typer.Option(min=0, help="Tokens to generate for each.")] = 64,
    lookahead: Annotated[int, typer.Option(min=0, help="Layers ahead whose gates are asked.")] = 3,
    guesses: Annotated[int, typer.Option(min=1, help="Experts to keep of each guess.")] = 8,
    device: Annotated[str, typer.Option(help="cpu, cuda, …")] = "cpu",
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Run a model and record which experts it uses (needs torch and transformers: the extra `capture`)."""
    from ..workbench.trace_files import capture_trace

    trace = capture_trace(
        model, texts, out, num_sequences=sequences, prompt_tokens=prompt, decode_tokens=decode,
        lookahead=lookahead, guesses=guesses, device=device, seed=seed,
    )  # fmt: skip
    show_trace(trace, out, json)


def show_trace(trace: ExpertTrace, path: Path, json: bool) -> None:
    facts = {
        "path": str(path), "model": trace.model, "synthetic": trace.synthetic, "tokens": trace.num_tokens,
        "sequences": trace.num_sequences, "layers": trace.num_layers, "num_experts": trace.num_experts,
        "top_k": trace.top_k, "notes": list(trace.notes),
    }  # fmt: skip
    warn(trace.notes)
    line = (
        f"wrote {path}: {trace.num_tokens:,} tokens in {trace.num_sequences:,} sequences, "
        f"{trace.num_layers} MoE layers, top-{trace.top_k} of {trace.num_experts} experts"
    )
    show(facts, [line], json)
