"""Tests of scripts/corpus on small inputs made here; no network, no packages.

Run: python3 tests/scripts/corpus_test.py
"""

import contextlib
import gzip
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import struct
import sys
import tempfile
import unicodedata
import unittest
import unittest.mock
import zlib

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "corpus"


def load():
    """Import the script, whose name has no .py."""
    sys.dont_write_bytecode = True
    loader = importlib.machinery.SourceFileLoader("corpus", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("corpus", loader))
    sys.modules["corpus"] = module  # dataclasses look their module up
    loader.exec_module(module)
    return module


corpus = load()


class Folder(unittest.TestCase):
    """A test with a folder of its own, also the cache of the script."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        environment = unittest.mock.patch.dict(os.environ, {"SMELT_CACHE": scratch.name})
        environment.start()
        self.addCleanup(environment.stop)

    def file(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path


class Text(unittest.TestCase):
    def test_clean_leaves_nfc_without_control_characters(self):
        text = corpus.clean("e\u0301\x00\x1b[1m\u200b\ufeff a\u00a0b \t\r\n\n\n\nend\x0c\n")
        self.assertEqual(text, "\u00e9[1m a b\n\nend")
        self.assertTrue(unicodedata.is_normalized("NFC", text))

    def test_pieces_cut_at_the_widest_boundary_and_lose_nothing(self):
        text = "head\n\n  body one\n\n  body two\n\nnext\n\n  body three"
        parts = corpus.pieces(text, 32)
        self.assertEqual(parts, ["head\n\n  body one\n\n  body two", "next\n\n  body three"])
        self.assertEqual("\n\n".join(parts), text)

    def test_pieces_keep_whole_characters_and_the_limit(self):
        text = "\n".join("\u00e9\u4e2d\U0001f600" * 5 for _ in range(40))
        parts = corpus.pieces(text, 100)
        self.assertTrue(all(len(part) <= 100 for part in parts))
        self.assertEqual("\n".join(parts), text)

    def test_group_joins_neighbours_up_to_the_limit(self):
        self.assertEqual(corpus.group(["aa", "bb", "cc"], 6), ["aa\n\nbb", "cc"])
        self.assertEqual(corpus.group([]), [])

    def test_page_drops_navigation_and_keeps_code(self):
        page = corpus.Page("<html><head><title>Sheep</title><style>b{}</style></head><body>"
                           "<div class='navheader'><div>Prev</div> Next</div><script>x()</script>"
                           "<h2>Wool<a class='headerlink'>\u00b6</a></h2><p class='note'>A\n sheep &amp; a <b>lamb</b>.</p>"
                           "<pre>if x:\n    y &lt; 1</pre><ul><li>one</li><li>two</li></ul></body></html>")
        self.assertEqual(page.text(), "# Sheep\n\n## Wool\n\nA sheep & a lamb.\n\nif x:\n    y < 1\n\n- one\n- two")

    def test_pod_shows_codes_and_leaves_code(self):
        source = "=head1 Use\n\nSee L<the B<page>|perlop/Cats>, C<< $a <=> $b >>\nand E<lt>.\n\n    C<kept>\n\n=over\n\n" \
                 "=item *\n\nOne\n\n=back\n\n=cut\n"
        self.assertEqual(corpus.pod_text(source),
                         "# Use\n\nSee the page, $a <=> $b\nand <.\n\n    C<kept>\n\n- One")

    def test_quiz_answers_take_the_fullest_form(self):
        self.assertEqual(corpus.quiz_answer("{The }Moon{ and [six|6]pence}|Sixpence"), "The Moon and sixpence")

    def test_arithmetic_is_right_and_repeatable(self):
        text = corpus.arithmetic(3)
        self.assertEqual(text, corpus.arithmetic(3))
        self.assertNotEqual(text, corpus.arithmetic(4))
        sums = [line.split(" = ") for number in range(50) for line in corpus.arithmetic(number).split("\n")
                if line[0].isdigit() and "mod" not in line and "x" not in line and " = " in line]
        self.assertGreater(len(sums), 100)
        for first, *rest in sums:
            for value in rest:
                self.assertEqual(eval(first), eval(value), (first, rest))  # digits and operators made here


class Splitters(Folder):
    def test_sword_splits_at_chapters(self):
        block = ('<div osisID="Cats" sID="g1" type="book"/> <milestone n="Book of Cats" type="x"/>'
                 '<chapter n="1" osisID="Cats.1" sID="c"/><w lemma="x">They</w> purr.<note>No.</note>'
                 '<chapter n="2" osisID="Cats.2" sID="d"/><l>They sleep,</l><l>they eat.</l>').encode()
        packed = zlib.compress(block)
        self.file("ot.bzs", struct.pack("<III", 0, len(packed), len(block)))
        documents = corpus.sword(self.file("ot.bzz", packed))
        self.assertEqual(documents[1:], ["# Book of Cats 1\n\nThey purr.",
                                         "# Book of Cats 2\n\nThey sleep,\nthey eat."])

    def test_austen_reads_r_vectors_and_splits_at_chapters(self):
        def string(text):
            return struct.pack(">ii", 9, len(text)) + text.encode()
        lines = ["Title", "", "Chapter 1", "", "It was", "so.", "", "Chapter 2", "", "Then."]
        vector = b"X\n" + struct.pack(">iii", 2, 0, 0) + struct.pack(">ii", 16, len(lines)) + b"".join(map(string, lines))
        data = struct.pack(">i", len(vector)) + zlib.compress(vector)
        self.assertEqual(corpus.austen(self.file("r.rdb", data)),
                         ["Title\n", "Chapter 1\n\nIt was so.\n", "Chapter 2\n\nThen."])

    def test_metamath_keeps_the_statement_and_drops_the_proof_letters(self):
        path = self.file("set.mm", "$c wff $.\n$( Law ` a ` of ~ nothing .  (Contributed by X, 1-Jan-2000.) $)\n"
                                   "ax $a |- a $.\n${ h $e |- b $.\n$( See ~ ax . $)\nth $p |- c $= ( ax ) ABC $.\n$}\n")
        self.assertEqual(corpus.metamath(path), [
            "\n\nAxiom ax. Law a of nothing.\n  states  |- a\n\n"
            "Theorem th. See ax.\n  given   |- b\n  proves  |- c\n  using   ax"])

    def test_wordnet_links_synsets(self):
        rows = ("  1 a licence line\n"
                "00000010 05 n 01 animal 0 000 | a living thing; \"an animal ran\"\n"
                "00000020 05 n 02 cat 0 true_cat 0 001 @ 00000010 n 0000 | purrs\n")
        path = self.file("data.noun", rows)
        self.assertEqual(corpus.wordnet(path), [
            'animal (noun): a living thing. Example: "an animal ran"\n'
            "cat, true cat (noun): purrs. A kind of animal."])
        self.assertEqual(corpus.wordnet_questions(path), corpus.wordnet_questions(path))

    def test_generated_code_and_tables_are_left_out(self):
        self.assertEqual(corpus.source_file(self.file("a.go", "// Code generated by x. DO NOT EDIT.\n")), [])
        self.assertEqual(corpus.source_file(self.file("b.go", "0x1, 0x2, 0x3,\n" * 50)), [])
        self.assertEqual(corpus.source_file(self.file("c.go", "package c\n")), ["package c\n"])

    def test_read_unpacks_gzip(self):
        self.assertEqual(corpus.read(self.file("a.txt.gz", gzip.compress("\u00e9".encode()))), "\u00e9")


class Repeats(unittest.TestCase):
    def test_equal_and_nearly_equal_texts_are_refused(self):
        lines = [f"a line that is long enough to count, {number}" for number in range(10)]
        seen = corpus.Seen()
        self.assertFalse(seen.repeats("\n".join(lines)))
        self.assertTrue(seen.repeats("\n\n".join(lines).upper() + "  "))
        self.assertTrue(seen.repeats("\n".join(lines[:9] + ["but one line of it is quite another"])))
        self.assertFalse(seen.repeats("\n".join(lines[:1] + [f"a wholly different line, number {n}" for n in range(5)])))


class Build(Folder):
    """Builds from fixture packages: folders that stand for unpacked ones."""

    def setUp(self):
        super().setUp()
        self.sources = [
            corpus.Source("notes", "Notes", "pkg-notes", "notes", "*.md", "skip", "web", "CC0-1.0", corpus.markdown, 1, 1),
            corpus.Source("sums", "generated arithmetic", "", "", "", "", "math", "CC0-1.0", corpus.arithmetic, 0.002, 1),
        ]
        self.unpacked = 0
        for target, value in (("SOURCES", self.sources), ("PUBLISHED", {}), ("download", lambda package, _: package),
                              ("unpack", self.unpack)):
            patch = unittest.mock.patch.object(corpus, target, value)
            patch.start()
            self.addCleanup(patch.stop)

    def unpack(self, _, folder):
        self.unpacked += 1
        names = [f"{number}.md" for number in range(6)]
        for name in names if self.unpacked % 2 else reversed(names):  # another order in the file system
            path = folder / "notes" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(f"Note {name} says on its line {line} what is so.\n" for line in range(20)))
        (folder / "notes" / "copy.md").write_bytes((folder / "notes" / "3.md").read_bytes())
        (folder / "notes" / "skip.md").write_text("excluded " * 99)
        (folder / "notes" / "latin.md").write_bytes(b"\xe9" * 500)
        return "1.0-1"

    def run_script(self, *arguments):
        """Return the exit status, standard output and standard error of a run."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = corpus.main(arguments)
        return status, out.getvalue(), err.getvalue()

    def test_documents_are_complete_and_told_apart(self):
        status, out, _ = self.run_script("small")
        self.assertEqual(status, 0)
        path = pathlib.Path(out.splitlines()[-1])
        self.assertEqual(path, self.folder / "corpus" / "small.jsonl")
        documents = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        self.assertTrue(all(list(d) == ["id", "category", "source", "licence", "text"] for d in documents))
        self.assertEqual(len({d["id"] for d in documents}), len(documents))
        notes = [d for d in documents if d["category"] == "web"]
        self.assertEqual(len(notes), 6)  # the copy, the excluded and the Latin-1 file are not there
        self.assertLessEqual(sum(len(d["text"]) for d in documents if d["category"] == "math"), 2000)
        manifest = json.loads((path.parent / "small.manifest.json").read_text())
        self.assertEqual(manifest["packages"], {"pkg-notes": "1.0-1"})
        self.assertEqual([source["documents"] for source in manifest["sources"]], [6, len(documents) - 6])

    def test_same_bytes_from_another_file_order(self):
        first = pathlib.Path(self.run_script("small", "--output", str(self.folder / "a"))[1].strip())
        second = pathlib.Path(self.run_script("small", "--output", str(self.folder / "b"))[1].strip())
        self.assertEqual(self.unpacked, 2)
        self.assertEqual(first.read_bytes(), second.read_bytes())

    def test_a_good_file_is_reused_and_a_damaged_one_rebuilt(self):
        path = pathlib.Path(self.run_script("small")[1].strip())
        good = path.read_bytes()
        self.run_script("small")
        self.assertEqual(self.unpacked, 1)
        path.write_bytes(good[:-1] + b"x")
        status, _, err = self.run_script("small", "--check")
        self.assertEqual((status, self.unpacked), (1, 1))
        self.assertIn("needs " + corpus.hashlib.sha256(good).hexdigest(), err)
        self.assertEqual(self.run_script("small")[0], 0)
        self.assertEqual((path.read_bytes(), self.unpacked), (good, 2))
        self.assertEqual(self.run_script("small", "--check")[0], 0)

    def test_a_new_recipe_rebuilds(self):
        self.run_script("small")
        with unittest.mock.patch.object(corpus, "PUBLISHED", {"small": "0" * 64}):
            status, _, err = self.run_script("small")
        self.assertEqual((status, self.unpacked), (0, 2))
        self.assertIn("note: pkg-notes is 1.0-1, the published corpus has none", err)

    def test_copyleft_sources_need_their_option(self):
        self.sources[0] = corpus.dataclasses.replace(self.sources[0], copyleft=True)
        self.assertNotIn("CC0-1.0\", \"package\": \"pkg", self.manifest(self.run_script("small")))
        both = self.run_script("small", "--include-copyleft")
        self.assertTrue(both[1].endswith("/small-copyleft.jsonl\n"))
        self.assertIn("pkg-notes", self.manifest(both))

    def manifest(self, result):
        return pathlib.Path(result[1].strip()).with_suffix(".manifest.json").read_text()

    def test_a_source_without_files_fails_by_name(self):
        self.sources[0] = corpus.dataclasses.replace(self.sources[0], glob="*.txt")
        status, out, err = self.run_script("small")
        self.assertEqual((status, out), (1, ""))
        self.assertIn("package pkg-notes: no file notes/*.txt", err)
        self.assertEqual(list((self.folder / "corpus").glob("small*")), [])

    def test_a_failed_command_names_the_package_and_the_remedy(self):
        with self.assertRaisesRegex(corpus.CorpusError, "(?s)package x: download failed.*status 3: no route.*remedy: wait"):
            corpus.command("sh", "-c", "echo no route >&2; exit 3", what="package x: download failed", remedy="wait")
        with self.assertRaisesRegex(corpus.CorpusError, "no-such-command is not installed"):
            corpus.command("no-such-command", what="package x", remedy="")


class Table(unittest.TestCase):
    def test_small_holds_every_category_and_only_recorded_packages(self):
        for profile in ("small", "large"):
            taken = [s for s in corpus.SOURCES if getattr(s, profile) and not s.copyleft]
            self.assertEqual({s.category for s in taken}, set(corpus.CATEGORIES))
            self.assertLessEqual({s.package for s in taken if s.package}, set(corpus.RECORDED))
        self.assertEqual(len({s.key for s in corpus.SOURCES}), len(corpus.SOURCES))


class Cached(unittest.TestCase):
    def test_cached_small_is_whole_and_balanced(self):
        path = corpus.cache_folder() / "small.jsonl"
        if not path.exists():
            self.skipTest(f"{path} is not there; scripts/corpus small makes it")
        self.assertEqual(corpus.damage(path), "")
        sizes = dict.fromkeys(corpus.CATEGORIES, 0)
        with open(path, encoding="utf-8", newline="\n") as lines:
            for document in map(json.loads, lines):
                text = document["text"]
                self.assertEqual(corpus.clean(text), text, document["id"])
                self.assertTrue(document["licence"])
                sizes[document["category"]] += len(text.encode())
        wanted = {"prose": 18, "web": 18, "encyclopedia": 15, "code": 20, "math": 15, "qa": 14}
        for category, percent in wanted.items():
            self.assertAlmostEqual(100 * sizes[category] / sum(sizes.values()), percent, delta=3, msg=category)


if __name__ == "__main__":
    unittest.main()
