from __future__ import annotations

import threading
import time

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from relayweb.recording.reading import queries, search
from relayweb.recording.store import search_index
from tests.recording.recorded import Talk, answer, record, request

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def empty_index():
    search_index.clear()


def index():
    while search_index.catch_up():
        pass


def say(session, asks, says, *, start=0.0, history=()):
    talk = Talk(session, start=start)
    body = request(asks)
    body["content"]["messages"] = [*history, {"role": "user", "content": asks}]
    talk.attempt(talk.call(), data=body, out=answer(says))
    talk.record()
    return talk.turn


def found(q):
    return {turn["session_id"] for turn in queries.turns(q)["turns"]}


@pytest.fixture(params=["indexed", "not yet indexed"])
def said(request):
    say("fox", "the quick brown fox", "jumps over the lazy dog", start=0)
    say("dog", "a lazy brown dog sleeps all day long and dreams of foxes in the field", "naïve café", start=10_000)
    say("cjk", "漢字を読む", "relay_über_ok 🚀", start=20_000)
    if request.param == "indexed":
        index()


@pytest.mark.parametrize(
    ("q", "sessions"),
    [
        ("fox", {"fox"}),
        ("FOX", {"fox"}),
        ("fox*", {"fox", "dog"}),
        ("lazy", {"fox", "dog"}),
        ('"lazy dog"', {"fox"}),
        ('"brown dog"', {"dog"}),
        ('"dog brown"', set()),
        ("lazy brown", {"fox", "dog"}),
        ("lazy -quick", {"dog"}),
        ("cafe", {"dog"}),
        ("naïve", {"dog"}),
        ("漢字", {"cjk"}),
        ("字を", {"cjk"}),
        ("字漢", set()),
        ("relay_über_ok", {"cjk"}),
        ('"jumps over"', {"fox"}),
        ("elephant", set()),
        ('"!!!"', set()),
        ("🚀", {"cjk"}),
        ("✅", set()),
        ("*", {"fox", "dog", "cjk"}),
        ("🚀 漢字", {"cjk"}),
        ("status:ok fox", {"fox"}),
        ("status:failed fox", set()),
    ],
)
def test_messages_are_found_by_word_prefix_and_phrase(said, q, sessions):
    assert found(q) == sessions


SPOKEN = {
    "signs": "all tests pass ✅ and x != y => done; price: $5 (≈ 4 €)",
    "emoji": "family 👨‍👩‍👧 and a heart ❤️ for C++",
    "hangul": "한국어 문서를 읽습니다",
    "thai": "ภาษาไทยไม่มีช่องว่าง",
    "rare": "𠮷野家で食べる",
    "signature": "a signature of sign2705",
}


@pytest.mark.parametrize("moment", ["indexed", "not yet indexed"])
def test_signs_and_scripts_without_spaces_are_found_however_old(moment, monkeypatch):
    for at, (session, text) in enumerate(SPOKEN.items()):
        say(session, text, "ok", start=at * 10_000)
    if moment == "indexed":
        index()
        monkeypatch.setattr(search, "MAX_UNINDEXED", 0)
    searches = {
        **{"✅": {"signs"}, '"!="': {"signs"}, '"=> done"': {"signs"}, "€": {"signs"}, '"$5"': {"signs"}, "☃": set()},
        **{"👩": {"emoji"}, "👨‍👩‍👧": {"emoji"}, "❤": {"emoji"}, "❤️": {"emoji"}, '"C++"': {"emoji"}, "c": {"emoji"}},
        **{"국": {"hangul"}, "국어": {"hangul"}, "읽습*": {"hangul"}, "어국": set()},
        **{"ไทย": {"thai"}, "ช่อง": {"thai"}, "𠮷": {"rare"}, "野家": {"rare"}, "べ": {"rare"}},
        **{"sign*": {"signature"}, "sign2705": {"signature"}, "sign": set()},
    }
    assert {q: found(q) for q in searches} == searches


def test_an_index_of_an_older_form_is_made_anew():
    say("a", "all is well ✅", "ok")
    index()
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM recording_searchstate WHERE id = 2")
        cursor.execute("DELETE FROM recording_mention")
    index()
    assert found("✅") == found("well") == {"a"}


def test_an_answer_says_where_it_looked_at_less_than_all(monkeypatch):
    for i in range(3):
        say(f"s-{i}", f"number {i} of the lazy dogs that sleep in the warm sun", "ok", start=i * 10_000)

    def notes(q):
        return queries.turns(q)["notes"]

    monkeypatch.setattr(search, "MAX_UNINDEXED", 2)
    assert ["the newest 2 events" in note for note in notes("dogs")] == [True]
    index()
    assert notes("dogs") == notes('"lazy dogs"') == notes("do*") == []
    monkeypatch.setattr(search, "MAX_CHECKED", 2)
    assert ["newest 2" in note for note in notes('"lazy dogs"')] == [True]
    assert ["ends of words" in note for note in notes("*ogs")] == [True]
    assert found("*ogs") == set()
    assert ["no letter" in note for note in notes('"\u0301"')] == [True]


def test_the_same_words_in_two_turns_find_both():
    for i in range(3):
        say(
            f"s-{i}",
            "please summarise this rather long and winding document for me",
            "certainly, here it is",
            start=i * 10_000,
        )
    assert found("winding") == found("certainly") == {"s-0", "s-1", "s-2"}
    index()
    assert found("winding") == found("certainly") == {"s-0", "s-1", "s-2"}


def test_history_that_a_request_repeats_finds_the_turn_that_said_it():
    long = "the original question about zebras and their many black and white stripes"
    say("first", long, "stripes confuse flies, it seems, and that is the whole story", start=0)
    index()
    history = [
        {"role": "user", "content": long},
        {"role": "assistant", "content": "stripes confuse flies, it seems, and that is the whole story"},
    ]
    say("second", "thanks", "welcome", start=10_000, history=history)
    index()
    assert found("zebras") == {"first"}


def test_history_of_a_conversation_that_was_never_recorded_is_found_where_it_came_first():
    history = [
        {
            "role": "system",
            "content": "You are an expert on medieval siege engines and their builders, trebuchets above all",
        }
    ]
    say("only", "hi", "hello", history=history)
    index()
    assert found("trebuchets") == {"only"}


def test_short_messages_and_tool_results_are_found():
    say("short", "hi", "yo")
    result = {
        "role": "tool",
        "tool_call_id": "c",
        "content": "exit code 7 from the flux capacitor, which is broken beyond repair",
    }
    talk = Talk("tool", start=10_000)
    body = request("run it")
    body["content"]["messages"].append(result)
    talk.attempt(talk.call(), data=body, out=answer("it failed"))
    talk.record()
    index()
    assert found("yo") == {"short"}
    assert found('"flux capacitor"') == {"tool"}


def test_files_ids_and_kinds_are_not_words():
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJDsecretbytes"}}
    talk = Talk("image")
    body = request()
    body["content"]["messages"] = [{"role": "user", "content": [{"type": "text", "text": "what is this"}, picture]}]
    talk.attempt(talk.call(), data=body)
    talk.record()
    index()
    assert found("QUJDsecretbytes") == found("image_url") == set()
    assert found('"what is this"') == {"image"}


def test_indexing_twice_changes_nothing_and_each_content_is_one_document():
    say("a", "the very same question that is long enough to be stored once", "ok", start=0)
    say("b", "the very same question that is long enough to be stored once", "ok", start=10_000)
    index()
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(DISTINCT doc), count(*) FROM recording_mention WHERE doc > 0")
        documents, mentions = cursor.fetchone()
    assert (documents, mentions) == (1, 2)
    assert search_index.catch_up() is False
    assert found('"very same question"') == {"a", "b"}


def test_the_record_is_locked_for_few_statements_however_many_words_are_indexed():
    for number in range(30):
        say(f"s-{number}", f"Question {number}?", f"Answer {number}.")
    with CaptureQueriesContext(connection) as captured:
        index()
    inserts = [q["sql"] for q in captured if "INSERT INTO recording_" in q["sql"]]
    # Of many rows Django tells "30 times: INSERT …" where each is a statement of its own.
    assert 2 <= len(inserts) <= 4 and all(sql.startswith("INSERT") for sql in inserts)


def test_an_index_of_another_record_is_made_anew():
    say("a", "pterodactyl", "ok")
    index()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE recording_searchstate SET seq = 1000000")
    index()
    assert search_index.reached() == queries.latest_seq() or search_index.reached() > 0
    assert found("pterodactyl") == {"a"}


def test_phrases_of_more_documents_than_are_checked_still_find_all_their_words(monkeypatch):
    monkeypatch.setattr(search, "MAX_CHECKED", 1)
    for i in range(3):
        say(f"s-{i}", f"number {i} of the lazy dogs that sleep in the warm sun all day", "ok", start=i * 10_000)
    index()
    assert found('"lazy dogs"') == {"s-0", "s-1", "s-2"}


def test_the_indexer_follows_the_writer(monkeypatch):
    from relayweb.recording.writing.writer import writer
    from tests.recording.streams import line

    monkeypatch.setattr(search.Indexer, "PAUSE", 0.01)
    before = threading.active_count()
    follower = search.Indexer()
    follower.start()
    follower.start()
    try:
        talk = Talk("live")
        talk.attempt(talk.call(), asks="xylophone music in the morning")
        writer().submit_sync(b"\n".join(map(line, talk.all())))
        newest = queries.latest_seq()
        deadline = time.monotonic() + 10
        while search_index.reached() < newest - 1 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert search_index.reached() > 0
        assert found("xylophone") == {"live"}
    finally:
        follower.close()
        follower.close()
        writer().close()
    assert threading.active_count() <= before


def test_what_is_indexed_can_be_emptied():
    say("a", "pterodactyl", "ok")
    index()
    search_index.clear()
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM recording_mention")
        assert cursor.fetchone() == (0,)
    assert search_index.reached() == 0
    record()


def test_what_is_deleted_is_taken_out_of_the_index():
    from relayweb.recording.models import Content, Event

    gone = say("gone", "a long question about the migration of pterodactyls in winter", "pterodactyls fly south")
    say("stays", "another long question about the habits of brontosaurs in summer", "they eat", start=10_000)
    index()
    contents = Content.objects.filter(kind=Content.Kind.MESSAGE).order_by("id").values_list("id", flat=True)[:1]
    attempts = [n["uuid"] for n in queries.turn_nodes(gone) if n["role"] == "attempt"]
    search_index.forget(list(contents), Event.objects.filter(uuid__in=attempts).values_list("seq", flat=True))
    assert found("pterodactyls") == set() and found("brontosaurs") == {"stays"}


@pytest.mark.parametrize(
    "q", ["words", "1", '"words-1"', "example", '"example.com/a_b"', "b", "ops", "5", "1e5", "GPT"]
)
def test_words_end_at_every_sign_whatever_the_text_looks_like(q):
    say("signs", "see words-1 at https://example.com/a_b?x=-5", "or mail ops@example.com; 1e5, gpt-4.1")
    index()
    assert found(q) == {"signs"}


def test_words_of_any_length_and_kind_can_be_indexed_and_found():
    say("long", "x" * 70_000 + " '\\\\ \" & | ! <-> quoted':*", "short " + "ab " * 30_000)
    index()
    assert found("quoted") == found("short") == {"long"}
