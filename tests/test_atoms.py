"""What counts as characteristic in a text, in code, in prose and in scripts without names."""

from __future__ import annotations

import pytest

from jev_engine.atoms import LINE_CAP, atoms_of, facts_of, kept_atoms_of, lines_of


@pytest.mark.parametrize(
    ("text", "atom"),
    [
        ("open src/app/main.py now", b"F:main.py"),
        ("the file README.md.", b"F:README.md"),
        ("call load_config here", b"load_config"),
        ("class HttpServer:", b"HttpServer"),
        ("self.parser.parse_args()", b"parse_args"),
        ("commit 9fceb02d0ae5", b"9fceb02d0ae5"),
        ("a-long-flag-name", b"a-long-flag-name"),
        ("--dry-run-only", b"dry-run-only"),
        ("port 54321", b"54321"),
        ("see #123", b"#123"),
        ("see #12", b"#12"),
        ("at v1.22.333", b"v1.22.333"),
        ("id 123e4567-e89b-12d3-a456-426614174000", b"123e4567-e89b-12d3-a456-426614174000"),
        ("https://example.org/some/page", b"//example.org/some/page"),
        ("in packages/my_module/", b"my_module"),
        ("$HOME_DIR is set", b"HOME_DIR"),
    ],
)
def test_names_of_every_shape_are_atoms(text, atom):
    """File names, identifiers, hashes, versions, numbers and links can be recognised again."""
    assert atom in atoms_of(text)


@pytest.mark.parametrize(
    ("text", "atoms"),
    [
        ("1.22.333", {b"1.22.333"}),
        ("10.0.0.1", {b"10.0.0.1"}),
        ("1.2.3-beta", {b"1.2.3-beta"}),
        ("0.25 1.5s 12.25ms 100.5MB", set()),
        ("1234.5678", {b"1234", b"5678"}),
        ("12345.6s", {b"12345"}),
        ("59.123456Z", set()),
        ("0.123abcde", {b"123abcde"}),  # a hash behind a dot
        ("Content-type Foo-Bar-Baz foo-BAR", set()),
        ("Keep-the-alive", {b"the-alive"}),
        ("FooBar-baz", {b"FooBar"}),
    ],
)
def test_numbers_and_joined_words_are_atoms_only_where_they_say_something(text, atoms):
    """A length of time or a size stands in every log; a version, an address or a long number does not."""
    assert atoms_of(text) == atoms


@pytest.mark.parametrize("text", ["", "the and for with", "Hello World", "12 345", "and/or", "- - ...", "ERROR", "a.b"])
def test_plain_short_words_are_no_atoms(text):
    """What stands in every text says nothing about where it came from."""
    assert atoms_of(text) == set()


def test_an_arrow_between_number_and_line_does_not_stick_to_the_word():
    """File listings put an arrow after the line number."""
    assert atoms_of("  12→load_config") == {b"load_config"}


@pytest.mark.parametrize(
    "text",
    [
        "数据库连接池已经耗尽。请检查配置文件",
        "データベースの接続プールが枯渇しています",
        "데이터베이스 연결 풀이 고갈되었습니다",
        "تم استنفاد مجموعة اتصالات قاعدة البيانات",
        "пул соединений базы данных исчерпан",
        "พูลการเชื่อมต่อฐานข้อมูลหมด",
        "the lighthouse keeper remembered every shipwreck along the northern coastline",
    ],
)
def test_prose_in_any_script_has_atoms(text):
    """No text of some length is without anything to recognise, so that nothing reads as dead for want of evidence."""
    assert atoms_of(text)


def test_a_chinese_term_is_found_again_in_another_sentence():
    """Runs of characters match although there are no blanks around them."""
    first = atoms_of("错误 数据库连接池耗尽")
    second = atoms_of("我们应当扩大数据库连接池")

    assert "数据库连".encode() in first & second


def test_korean_endings_do_not_hide_a_word():
    """The stem is recognised whatever ending it carries."""
    assert "데이터".encode() in atoms_of("데이터베이스를 확인") & atoms_of("데이터베이스가 느림")


def test_long_plain_words_count_only_where_nothing_better_does():
    """In code they would be noise, in prose they are all there is."""
    code = "\n".join(f"handler_{i} = lighthouse" for i in range(50))

    assert b"lighthouse" not in atoms_of(code)
    assert b"lighthouse" in atoms_of("a lighthouse on the shore and the wind around it " * 3)


@pytest.mark.parametrize(
    "row",
    [
        "    return parse(header, body_text)",
        "  12: return parse(header, body_text)",
        "  12→\treturn parse(header, body_text)",
        "00012| return parse(header, body_text)",
        "+   return parse(header, body_text)",
        "-   return parse(header, body_text)",
        "src/app.py:12: return parse(header, body_text)",
        "./src/app.py:12:    return parse(header, body_text)",
    ],
)
def test_a_line_is_the_same_line_in_every_listing(row):
    """Numbers, arrows, grep and diff prefixes do not belong to it."""
    assert lines_of(row) == {b"return parse(header, body_text)"}


@pytest.mark.parametrize("row", ["short line", "=" * 60, "averyverylongwordwithoutblank", "10 20 30 40 50 60 70 80 90"])
def test_rows_that_say_nothing_are_no_lines(row):
    """Too short, one word, rulers and tables of numbers."""
    assert lines_of(row) == set()


def test_a_line_is_cut():
    """Only its beginning is compared."""
    (line,) = lines_of("word " * 200)

    assert len(line) == LINE_CAP


def test_facts_say_whether_a_text_is_plain():
    """Prose and other scripts are outside what the judge was trained on."""
    assert not facts_of("def load_config(path):\n    return parse_file(path)").is_plain
    assert facts_of("the keeper of the house went up the stairs again " * 9).is_plain
    assert facts_of("数据库连接池已经耗尽。请检查配置文件 config.yaml").is_plain


def test_facts_count_what_the_text_holds():
    """Characters, line breaks, atoms and lines."""
    facts = facts_of("open the file src/main.py and read it\nthen stop\n")

    assert facts.chars == 48
    assert facts.line_count == 2
    assert facts.atoms == (b"F:main.py",)
    assert len(facts.lines) == 1


def test_kept_text_and_results_share_one_idea_of_atoms():
    """Otherwise a use would not be recognised."""
    assert kept_atoms_of("run load_config") == frozenset(facts_of("run load_config").atoms)


@pytest.mark.parametrize(
    "text",
    [".-" * 8_000, "\n" * 20_000, "x" * 5_000_000, "a/" * 50_000, "é" * 10_000, "\ud800 broken", "_." * 9_000],
)
def test_hostile_texts_are_read(text):
    """Every pattern sees a bounded piece; lone surrogates do not stop it."""
    facts = facts_of(text)

    assert facts.chars == len(text)
    assert len(facts.atoms) < 10
