# SPDX-License-Identifier: Apache-2.0
"""The official clients against a server process with the demo model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import anthropic
import httpx
import openai
import pytest

from serving import serving

pytestmark = pytest.mark.model

MODEL = "smollm2"
HELLO = [{"role": "user", "content": "Say hello."}]
PLAIN = {"api_key": "none", "max_retries": 0}
GREEDY = {"extra_body": {"temperature": 0}}  # newer versions of anthropic have no argument for it
ITEMS = [*HELLO, {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "Again."}]


@pytest.fixture(scope="module")
def url(smollm2_path: Path) -> Iterator[str]:
    flags = ("--served-model-name", MODEL, "--max-model-len", "512")
    with pytest.MonkeyPatch.context() as patch, serving(smollm2_path, *flags) as served:
        patch.setenv("NO_PROXY", "127.0.0.1")  # the clients look for a proxy where there is one
        yield served.url


@pytest.fixture(scope="module")
def openai_client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", **PLAIN) as client:
        yield client


@pytest.fixture(scope="module")
def anthropic_client(url: str) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=url, **PLAIN) as client:
        yield client


def test_chat_whole_and_streamed(openai_client: openai.OpenAI):
    options = {"model": MODEL, "messages": HELLO, "max_tokens": 12, "temperature": 0}
    whole = openai_client.chat.completions.create(**options)
    chunks = openai_client.chat.completions.create(**options, stream=True)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == whole.choices[0].message.content
    assert text.strip()


def test_completions_of_several_prompts(openai_client: openai.OpenAI):
    answer = openai_client.completions.create(
        model=MODEL, prompt=["One, two,", "A, B,"], max_tokens=4, temperature=0
    )
    assert [choice.index for choice in answer.choices] == [0, 1]


def test_responses_whole_and_streamed(openai_client: openai.OpenAI):
    options = {"model": MODEL, "input": ITEMS, "max_output_tokens": 12, "temperature": 0}
    whole = openai_client.responses.create(**options, instructions="Be brief.")
    assert whole.status in ("completed", "incomplete")
    assert whole.output_text.strip()
    assert whole.usage.output_tokens <= 12
    with openai_client.responses.stream(**options, instructions="Be brief.") as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds[0] == "response.created"
    assert "response.output_text.delta" in kinds
    assert final.output_text == whole.output_text


def test_a_conversation_goes_on_with_its_own_output(openai_client: openai.OpenAI):
    first = openai_client.responses.create(model=MODEL, input=HELLO, max_output_tokens=8)
    items = [
        *HELLO,
        *(item.model_dump() for item in first.output),
        {"role": "user", "content": "?"},
    ]
    second = openai_client.responses.create(model=MODEL, input=items, max_output_tokens=8)
    assert second.usage.input_tokens > first.usage.input_tokens


def test_openai_errors_have_their_fields(openai_client: openai.OpenAI):
    with pytest.raises(openai.BadRequestError) as refused:
        openai_client.responses.create(model=MODEL, input="Hi", previous_response_id="resp_1")
    assert refused.value.param == "previous_response_id"
    with pytest.raises(openai.NotFoundError):
        openai_client.responses.create(model="gpt-9", input="Hi")


def test_messages_whole_and_streamed(anthropic_client: anthropic.Anthropic):
    options = {
        "model": MODEL,
        "system": "Be brief.",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Say hello."}]}],
        "max_tokens": 12,
        **GREEDY,
    }
    whole = anthropic_client.messages.create(**options)
    assert whole.content[0].text.strip()
    assert whole.stop_reason in ("end_turn", "max_tokens")
    with anthropic_client.messages.stream(**options) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[0].text == final.content[0].text
    assert final.usage.output_tokens == whole.usage.output_tokens
    counted = anthropic_client.messages.count_tokens(
        model=MODEL, system=options["system"], messages=options["messages"]
    )
    total = whole.usage.input_tokens + whole.usage.cache_read_input_tokens
    assert counted.input_tokens == total


def test_a_stop_sequence_is_named(anthropic_client: anthropic.Anthropic):
    options = {"model": MODEL, "messages": HELLO, "max_tokens": 30, **GREEDY}
    text = anthropic_client.messages.create(**options).content[0].text
    stop = text[3:6]
    answer = anthropic_client.messages.create(**options, stop_sequences=[stop])
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", stop)
    assert answer.content[0].text == text[: text.index(stop)]


def test_anthropic_errors_are_its_own(anthropic_client: anthropic.Anthropic):
    with pytest.raises(anthropic.NotFoundError, match="not_found_error"):
        anthropic_client.messages.create(model="claude-9", messages=HELLO, max_tokens=5)
    with pytest.raises(anthropic.BadRequestError, match="max_tokens"):
        anthropic_client.messages.create(model=MODEL, messages=HELLO, max_tokens=0)


def test_asynchronous_clients_run_side_by_side(url: str):
    async def main() -> None:
        async with (
            openai.AsyncOpenAI(base_url=f"{url}/v1", **PLAIN) as one,
            anthropic.AsyncAnthropic(base_url=url, **PLAIN) as other,
        ):

            async def chat() -> str:
                stream = await one.chat.completions.create(
                    model=MODEL, messages=HELLO, max_tokens=12, temperature=0, stream=True
                )
                return "".join([c.choices[0].delta.content or "" async for c in stream])

            async def respond() -> str:
                answer = await one.responses.create(
                    model=MODEL, input=HELLO, max_output_tokens=12, temperature=0
                )
                return answer.output_text

            async def message() -> str:
                async with other.messages.stream(
                    model=MODEL, messages=HELLO, max_tokens=12, **GREEDY
                ) as stream:
                    return "".join([text async for text in stream.text_stream])

            answers = await asyncio.gather(*[f() for f in (chat, respond, message) for _ in "abc"])
        assert len(set(answers)) == 1  # one conversation, three ways of asking for it

    asyncio.run(main())


def test_greedy_text_is_the_same_alone_and_in_company_cold_and_warm(url: str):
    """Half of the prompts come alone at first and half together; then the other way round."""
    words = "sun moon cat dog red blue sea tree".split()
    prompts = [f"The {one} and the {other} went" for one in words for other in words][:32]
    asked = [{"prompt": prompt, "max_tokens": 8, "temperature": 0} for prompt in prompts]

    async def main() -> None:
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=60) as client:

            async def ask(body: dict) -> str:
                answer = (await client.post("/v1/completions", json=body)).json()
                return answer["choices"][0]["text"]

            async def together(bodies: list[dict]) -> list[str]:
                return list(await asyncio.gather(*map(ask, bodies)))

            cold_alone = [await ask(body) for body in asked[:16]]
            cold_together = await together(asked[16:])
            warm_together = await together(asked)
            warm_alone = [await ask(body) for body in asked]
        assert warm_together == cold_alone + cold_together
        assert warm_alone == warm_together
        assert len(set(warm_alone)) > 10

    asyncio.run(main())


UNSAYABLE = "\x04\x06\x13\x14\x16\x1d"  # bytes that this model's vocabulary lacks


def test_naughty_strings_survive_the_tokenizer(url: str, data_dir: Path):
    naughty = json.loads((data_dir / "tokenizers" / "blns.json").read_text())
    texts = [text.translate(dict.fromkeys(map(ord, UNSAYABLE))) for text in naughty]
    with httpx.Client(base_url=url, trust_env=False) as client:
        for text in texts:
            body = {"prompt": text, "add_special_tokens": False, "return_token_strs": True}
            answer = client.post("/tokenize", json=body).json()
            assert answer["count"] == len(answer["tokens"]) == len(answer["token_strs"])
            back = client.post("/detokenize", json={"tokens": answer["tokens"]})
            assert back.json()["prompt"] == text
            messages = [{"role": "user", "content": f"<<{text}>>"}]
            rendered = client.post("/apply-template", json={"messages": messages}).json()["prompt"]
            assert f"<<{text}>>" in rendered
