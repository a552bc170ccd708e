"""The small workload `workbench run` starts with: a minute of six clients asking real questions.

What to look for in it: four requests of different lengths in the first half second (batching), one prompt of more
than 600 tokens at 0.8 s that is prefilled in chunks while the others go on decoding, the same text asked about again
later (prefix hits), alice's requests with a shared beginning, bursts of `load` that fill the batch, quiet stretches.
Invariant: plain data; nothing here is random.
"""

from __future__ import annotations

from traces.workload import RequestSpec, Workload

PERIOD = 60.0

LETTER = """\
The harbour of Brindle has kept its own time for as long as anyone remembers. The clock on the customs house was \
built by a woman called Marta Quill, who repaired ship's instruments and did not think much of clocks that \
showed only the hour. Hers shows the hour, the tide, the phase of the moon and, on a small brass dial near the \
ground, how many boats are out. The last dial is moved by hand. Every skipper who leaves turns it forward by \
one, and every skipper who comes home turns it back. When the dial stands at zero, the harbour lamp is put out \
and the keeper goes to bed.

In the winter of the long frost the dial stood at one for nine days. The missing boat was the Patience, a flat \
little herring boat with a crew of three: old Tomas Reed, his niece Ana, and a boy from the mill whom everyone \
called Sparrow. The keeper, Josef Lind, kept the lamp burning all nine nights. He burned the oil that was meant \
for spring, then the oil from his own kitchen, and on the eighth night the oil that the baker brought him in a \
soup pot. People told him that it was foolish. The bay was frozen from shore to shore, they said, and no boat \
could come in even if it wanted to. Josef answered that the dial said one, and that he had never learned to read \
it in any other way.

On the ninth night three people came walking over the ice. They had left the Patience stuck fast beside Gull \
Rock, eleven miles out, with her anchor down and a note on the door in case somebody found her first. They had \
walked by day and slept under the sail at night. Ana said that on the last evening a snow cloud had come down so \
thick that she could not see her own boots. Tomas wanted to stop and wait. It was Sparrow who saw a yellow \
smear, low down and a little to the left of where they were going, and said that it must be the lamp, because \
nobody else would be awake at such an hour. They turned left. Had they gone straight on, they would have come to \
the river mouth, where the ice is thin all winter.

Sparrow went to the customs house before he went to the fire. He took hold of the small brass dial with both \
hands, because his fingers were stiff, and turned it back to zero. Then Josef put the lamp out.

In spring the Patience was found where they had left her, with the note still on the door. The town paid for the \
oil. Marta Quill, who was very old by then, was asked whether she wanted to add another dial to her clock, one \
for the people who are waiting on the shore. She thought about it for some days and said no. That number, she \
said, is always larger than the other one, and there is no need to count it."""

COOK = (
    "You are a friendly cook who explains simple recipes. Give the ingredients first, then three or four short steps. "
    "Say how long it takes and how many people it feeds."
)
TUTOR = "You are a patient teacher. Explain with one everyday example and no formulas."


def _about(question: str) -> str:
    return f"Read this story and answer the question.\n\n{LETTER}\n\nQuestion: {question}"


TOPICS = (
    "the moon",
    "honey bees",
    "the number zero",
    "volcanoes",
    "bicycles",
    "glass",
    "the Nile",
    "tea",
    "lighthouses",
    "chess",
    "snow",
    "bread",
    "whales",
    "paper",
    "clocks",
    "bridges",
)

# (arrival s, client, max_tokens, temperature, system message or None, user message)
_ROWS: tuple[tuple[float, str, int, float, str | None, str], ...] = (
    (0.0, "alice", 110, 0.3, COOK, "How do I make pancakes?"),
    (0.1, "bob", 48, 0.0, None, "What is the capital of France, and what river runs through it?"),
    (0.25, "dave", 90, 0.3, TUTOR, "Why is the sky blue?"),
    (0.4, "erin", 160, 0.7, None, "Write a short story about a robot who learns to bake bread."),
    (0.8, "carol", 120, 0.0, None, _about("What is this story about?")),
    (3.0, "bob", 64, 0.0, None, "Name three animals that live in the sea and say one thing about each."),
    (5.0, "alice", 110, 0.3, COOK, "How do I make a simple tomato soup?"),
    (8.0, "dave", 90, 0.3, TUTOR, "How does a fridge keep food cold?"),
    (9.5, "bob", 56, 0.0, None, "What are the primary colors?"),
    (12.0, "carol", 90, 0.0, None, _about("Who is Marta Quill?")),
    (15.0, "erin", 140, 0.7, None, "Write a short poem about the sea."),
    (19.0, "alice", 110, 0.3, COOK, "What can I make with bananas and oats?"),
    (22.0, "bob", 56, 0.0, None, "What is the difference between a lake and a pond?"),
    (24.0, "dave", 90, 0.3, TUTOR, "What is a black hole?"),
    (29.0, "carol", 90, 0.0, None, _about("How does the story end?")),
    (33.0, "erin", 160, 0.7, None, "Write a letter from a lighthouse keeper to the sea."),
    (36.0, "alice", 110, 0.3, COOK, "How do I make an omelette with cheese?"),
    (38.0, "bob", 48, 0.0, None, "Who wrote Romeo and Juliet, and when?"),
    (41.0, "dave", 90, 0.3, TUTOR, "Why do we have seasons?"),
    (46.0, "erin", 140, 0.7, None, "Invent a holiday and describe how people celebrate it."),
    (50.0, "alice", 110, 0.3, COOK, "How do I bake potatoes?"),
    (52.0, "bob", 56, 0.0, None, "What is the capital of Japan and what is it known for?"),
)
_BURSTS = (2.0, 17.0, 31.0, 44.0)
"""Seconds at which `load` sends a burst of four, a fifth of a second apart."""


def builtin_workload() -> Workload:
    """A new request about every two seconds for a minute; `repeated` starts the next round a minute later."""
    rows = list(_ROWS)
    topics = iter(TOPICS)
    for start in _BURSTS:
        rows += [
            (start + 0.2 * turn, "load", 56, 0.2, None, f"Tell me two facts about {next(topics)}.") for turn in range(4)
        ]
    rows.sort(key=lambda row: row[0])
    counts: dict[str, int] = {}
    specs = []
    for number, (arrival, client, max_tokens, temperature, system, text) in enumerate(rows):
        counts[client] = counts.get(client, 0) + 1
        messages = (*((("system", system),) if system else ()), ("user", text))
        specs.append(
            RequestSpec(
                f"{client}-{counts[client]}",
                arrival=arrival,
                messages=messages,
                max_tokens=max_tokens,
                client=client,
                temperature=temperature,
                top_p=1.0 if temperature == 0 else 0.9,
                seed=number,
            )
        )
    return Workload("built-in", tuple(specs), period=PERIOD)
