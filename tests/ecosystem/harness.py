"""lm-evaluation-harness as it is: its own `hf` backend, `local-completions` against `longshot
serve`, and the model class of the Python package, on local tasks in the forms of LAMBADA, of a
multiple choice, of a rolling perplexity and of a generation. The three must agree in every printed
digit. The models are the tests' GPT-2 and Llama, trained on texts of that kind and exported: with
random weights a perplexity has fifteen digits before the point, more than f32 tells apart (`hf` adds
f32 numbers up in f32). Then OpenAI's own client."""

import json
import os
import pathlib
import random
import sys

import check

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "python")]
from serve_client import Server  # noqa: E402

# the package that is registered runs on the library beside the program
os.environ.setdefault("LONGSHOT_LIBRARY", str(pathlib.Path(check.program).with_name("liblongshot.so")))

WORK = pathlib.Path(check.work, "harness")
CHECKPOINTS = pathlib.Path(os.environ.get("LONGSHOT_CHECKPOINTS", ROOT / "tests/golden/checkpoints"))
WORDS = ("the a model line text of that reads learns little stops caf\u00e9 na\u00efve 12 3 long short "
         "and is was never always context token").split()


def sentence(draw, count):
    """Mostly the words in their order, so that there is something to learn."""
    at, said = draw.randrange(len(WORDS)), []
    for _ in range(count):
        at = (at + 1) % len(WORDS) if draw.random() < 0.8 else draw.randrange(len(WORDS))
        said.append(WORDS[at])
    return " ".join(said)


def make_tasks():
    """Files of questions, and what the harness is to do with them."""
    draw = random.Random(3)
    WORK.mkdir(parents=True, exist_ok=True)

    def words(count):
        return sentence(draw, count)

    def write(name, rows, text):
        with open(WORK / f"{name}.jsonl", "w") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        (WORK / f"{name}.yaml").write_text(
            f"task: {name}\ndataset_path: json\ndataset_kwargs:\n  data_files:\n"
            f"    test: {WORK}/{name}.jsonl\ntest_split: test\n{text}metadata:\n  version: 1.0\n")

    write("local_lambada", [{"text": words(draw.randrange(5, 9))} for _ in range(20)], """\
output_type: loglikelihood
doc_to_text: "{{text.split(' ')[:-1]|join(' ')}}"
doc_to_target: "{{' '+text.split(' ')[-1]}}"
metric_list:
  - metric: perplexity
    aggregation: perplexity
    higher_is_better: false
  - metric: acc
    aggregation: mean
    higher_is_better: true
""")
    write("local_choice", [{"question": words(6), "options": [words(2) for _ in range(4)],
                            "answer": draw.randrange(4)} for _ in range(12)], """\
output_type: multiple_choice
doc_to_text: "{{question}} ="
doc_to_choice: "{{options}}"
doc_to_target: answer
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
  - metric: acc_norm
    aggregation: mean
    higher_is_better: true
""")
    write("local_rolling", [{"page": words(draw.randrange(10, 30))} for _ in range(3)], """\
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: page
metric_list:
  - metric: word_perplexity
  - metric: byte_perplexity
  - metric: bits_per_byte
""")
    write("local_write", [{"question": words(4), "answer": words(1)} for _ in range(4)], """\
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
generation_kwargs:
  until: ["zz"]
  max_gen_toks: 6
  do_sample: false
  temperature: 0
metric_list:
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
""")


def run(model, arguments, tasks):
    import lm_eval

    os.environ["HF_DATASETS_OFFLINE"] = "1"
    results = lm_eval.simple_evaluate(
        model=model, model_args=arguments, tasks=tasks, batch_size=1, bootstrap_iters=0,
        task_manager=lm_eval.tasks.TaskManager(include_path=str(WORK), include_defaults=False),
        log_samples=True)
    numbers = {f"{task} {key}": value for task, row in results["results"].items()
               for key, value in row.items() if isinstance(value, float)}
    samples = {task: [sample["resps"] for sample in sorted(rows, key=lambda r: r["doc_id"])]
               for task, rows in results["samples"].items()}
    return numbers, samples


def far(a, b):
    """The largest difference of two answers' numbers; texts and flags must be the same."""
    if isinstance(a, (list, tuple)):
        return max((far(x, y) for x, y in zip(a, b, strict=True)), default=0)
    try:
        return abs(float(a) - float(b))
    except ValueError:
        return 0 if a == b else float("inf")


def as_printed(numbers):
    """As the harness does, with 4 decimals."""
    return {key: f"{value:.4f}" for key, value in numbers.items()}


def compare(name, what, numbers, samples, reference):
    printed, wanted = map(as_printed, (numbers, reference[0]))
    check.report(f"{name}, {what}", printed == wanted and len(wanted) >= 4,
                 ", ".join(f"{key} {value}" for key, value in sorted(printed.items()))
                 if printed == wanted else f"{printed} is not {wanted}")
    distance = max(far(samples[task], reference[1][task]) for task in samples)
    check.report(f"{name}, {what}: every answer", distance < 1e-4, f"largest difference {distance:.1e}")


def trained(name):
    """The folder of a tiny checkpoint that has learnt the words."""
    text, run, folder = WORK / "text.txt", WORK / name, WORK / f"{name}-hf"
    if not folder.exists():
        draw = random.Random(4)
        text.write_text("\n".join(sentence(draw, draw.randrange(5, 40)) for _ in range(1500)))
        check.longshot("train", f"train.from={CHECKPOINTS / name}", f"data.corpus={text}",
                       "train.length=32", "train.batch=8", "train.steps=600", "train.lr=4e-3",
                       f"cache={check.work}/cache", f"out={run}")
        check.longshot("export", str(run), "to=hf", f"out={folder}")
    return str(folder)


def with_harness(name, case):
    folder = trained(name)
    tasks = ["local_lambada", "local_choice", "local_rolling", "local_write"]
    length = case["length"]
    # behind an interface the harness keeps a place for the token that it asks for, and another
    reference = run("hf", f"pretrained={folder},dtype=float32,device=cpu,max_length={length - 2}", tasks)
    with Server(check.program, folder, f"context={length}", "name=model", "chunk=8") as server:
        url = f"{server.address}/v1/completions"
        common = f"model=model,base_url={url},max_length={length},num_concurrent=4,{case['bos']}"
        compare(name, "local-completions", *run(
            "local-completions", f"{common},tokenizer={folder},tokenizer_backend=huggingface", tasks),
            reference)
        reused = server.metric("reused_tokens_total")
        check.report(f"{name}: one server, {server.metric('requests_accepted_total'):.0f} requests",
                     server.metric("requests_refused_total") == 0, f"{reused:.0f} tokens reused")
        if case["remote"]:
            compare(name, "local-completions, remote tokenizer", *run(
                "local-completions", f"{common},tokenizer_backend=remote",
                tasks[:2]), ({k: v for k, v in reference[0].items() if k.split()[0] in tasks[:2]},
                             reference[1]))
    import longshot.harness  # noqa: F401: registers the class

    compare(name, "--model longshot", *run("longshot", f"path={folder},max_length={length - 2}", tasks),
            reference)


def with_openai(name, case):
    from openai import BadRequestError, OpenAI

    folder = str(CHECKPOINTS / case)
    with Server(check.program, folder, "name=model") as server:
        client = OpenAI(base_url=server.address + "/v1", api_key="none")
        check.report(f"{name}: models", [m.id for m in client.models.list()] == ["model"])
        asked = dict(model="model", prompt="the text of a", max_tokens=12, temperature=0.7, seed=5)
        whole = client.completions.create(**asked)
        parts = "".join(p.choices[0].text for p in client.completions.create(**asked, stream=True))
        check.report(f"{name}: a stream is the whole", parts == whole.choices[0].text, repr(parts))
        messages = [{"role": "user", "content": "the text"}]
        chat = client.chat.completions.create(model="model", messages=messages, max_tokens=8, seed=1,
                                              logprobs=True, top_logprobs=2)
        check.report(f"{name}: chat", chat.choices[0].message.role == "assistant"
                     and len(chat.choices[0].logprobs.content) == chat.usage.completion_tokens)
        deltas = client.chat.completions.create(model="model", messages=messages, max_tokens=8,
                                                seed=1, stream=True)
        check.report(f"{name}: chat stream", "".join(
            d.choices[0].delta.content or "" for d in deltas) == chat.choices[0].message.content)
        try:
            client.completions.create(model="model", prompt="x", max_tokens=10**6)
            check.report(f"{name}: too long", False)
        except BadRequestError as error:
            check.report(f"{name}: too long", "fit" in str(error))
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(folder)
        ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True)
        ids = ids["input_ids"] if hasattr(ids, "keys") else ids
        check.report(f"{name}: prompt as transformers has it", chat.usage.prompt_tokens == len(ids))


def everything(name, case):
    (with_openai if isinstance(case, str) else with_harness)(name, case)


make_tasks()
everywhere = {
    "gpt2": {"length": 48, "bos": "add_bos_token=False", "remote": True},
    "llama-llama3-sharded": {"length": 64, "bos": "add_bos_token=True", "remote": False},
    "openai client": "llama-llama3-sharded",
}
check.each({name: case for name, case in everywhere.items() if name in (sys.argv[3:] or everywhere)},
           everything)
