"""Settings as text: TOML in and out, `section.key=value` overrides, and who wins over whom.

Precedence: recipe < file < overrides < flags. Types are checked strictly: a string is no number, 1 is no `true`, and an
unknown key is an error that names the nearest one. What may be left open takes "none": TOML has no such word.
"""

from __future__ import annotations

import difflib
import tomllib
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from resnettrain.config import TrainConfig
from resnettrain.errors import ConfigError
from resnettrain.recipes import DEFAULT_RECIPE, recipe

__all__ = [
    "from_toml",
    "read_toml",
    "resolve_config",
    "to_mapping",
    "to_toml",
    "with_overrides",
    "with_values",
]

_Config = TypeVar("_Config")
# What one batch over and over has unless it was said otherwise: it is to be learnt by heart, as it is. The crop is the
# largest square in the middle; a report is of the last step.
_OF_ONE_BATCH: dict[str, dict[str, Any]] = {
    "augment": {
        "scale": (1.0, 1.0), "ratio": (1.0, 1.0), "flip": False, "alternating_flip": False, "policy": "none",
        "mixup": 0.0, "cutmix": 0.0, "erasing": 0.0,
    },
    "loss": {"label_smoothing": 0.0},
    "log": {"window_steps": 1},
}  # fmt: skip
_OPENERS = "[{\"'"
_WORDS = {int: "a whole number", float: "a number", str: "a string", bool: "true or false", Path: "a path"}


def resolve_config(
    *,
    recipe_name: str | None = None,
    file: Path | None = None,
    overrides: Sequence[str] = (),
    flags: Mapping[str, Any] | None = None,
    base: TrainConfig | None = None,
) -> TrainConfig:
    """Return the settings of a run from everything that was said, the later one winning.

    One batch over and over (`data.one_batch`) is not changed by chance and not smoothed, where nothing else was said.

    Args: flags: dotted key -> value; None values are flags that were not given.  base: in place of a recipe, the
    settings of a run that is resumed.
    Raises: ConfigError: an unknown key, a wrong type, a value out of range.
    """
    values = _read_file(file) if file is not None else {}
    start = _start(recipe_name, values, base=base)
    said = [values, *map(_override, overrides)]
    said += [_nested(key, value) for key, value in (flags or {}).items() if value is not None]
    # Each is checked, also where a later one wins; built is all at once: of two settings that only fit each other,
    # neither fits what was there before.
    wanted = _merged(_checked(start, values) for values in said)
    if wanted.get("data", {}).get("one_batch"):
        wanted = _merged([_OF_ONE_BATCH, wanted])
    return _built(start, wanted)


def read_toml(path: Path) -> TrainConfig:
    """Return the settings in a TOML file over those of the recipe it names."""
    return resolve_config(file=path)


def from_toml(text: str) -> TrainConfig:
    """Return the settings in a TOML text over those of the recipe it names."""
    values = _parse(text, "the TOML text")
    return with_values(recipe(str(values.get("recipe", DEFAULT_RECIPE))), values)


def to_toml(config: TrainConfig) -> str:
    """Return the settings as TOML; what is None is left out, since TOML has no word for it."""
    import tomli_w

    return tomli_w.dumps(to_mapping(config))


def to_mapping(config: object) -> dict[str, Any]:
    """Return a dataclass as nested plain dicts of str, numbers, bools and lists, without its None values."""
    plain: dict[str, Any] = {}
    for item in fields(cast(Any, config)):
        value = getattr(config, item.name)
        if is_dataclass(value):
            plain[item.name] = to_mapping(value)
        elif value is not None:
            plain[item.name] = _plain(value)
    return plain


def with_overrides(config: TrainConfig, overrides: Sequence[str]) -> TrainConfig:
    """Return the settings with each `section.key=value` applied; the value is read as TOML.

    Raises: ConfigError: no '=', a value that is not TOML, an unknown key, a wrong type.
    """
    return _built(config, _merged(_checked(config, _override(text)) for text in overrides))


def with_values(config: _Config, values: Mapping[str, Any]) -> _Config:
    """Return a copy of a config dataclass with nested values replaced, types checked strictly.

    Raises: ConfigError: an unknown key, with the nearest name; a wrong type; a value out of range.
    """
    return _built(config, _checked(config, values))


def _checked(config: object, values: Mapping[str, Any], *, where: str = "") -> dict[str, Any]:
    """Return nested values as the settings have them. Raises: ConfigError: an unknown key, a wrong type."""
    hints = get_type_hints(type(config))
    checked: dict[str, Any] = {}
    for key, value in values.items():
        path = f"{where}{key}"
        if key not in hints:
            raise ConfigError(_unknown(path, list(hints), where=where))
        now = getattr(config, key)
        if not is_dataclass(now):
            checked[key] = _typed(path, value, hint=hints[key])
        elif isinstance(value, Mapping):
            checked[key] = _checked(now, value, where=f"{path}.")
        else:
            raise ConfigError(f"{path}: is a section; set one of its keys, such as {path}.{_first_key(now)}.")
    return checked


def _built(config: _Config, values: Mapping[str, Any]) -> _Config:
    made = {item.name: getattr(config, item.name) for item in fields(cast(Any, config))}
    for key, value in values.items():
        made[key] = _built(made[key], value) if is_dataclass(made[key]) else value
    return type(config)(**made)


def _start(recipe_name: str | None, values: dict[str, Any], *, base: TrainConfig | None) -> TrainConfig:
    """Return what the file is laid over; a recipe that was named wins over the one in the file."""
    said = recipe_name or values.pop("recipe", None)
    values.pop("recipe", None)
    if base is None:
        return recipe(_typed("recipe", said if said is not None else DEFAULT_RECIPE, hint=str))
    if said is not None and said != base.recipe:
        raise ConfigError(f"recipe: '{said}', but the run was begun with '{base.recipe}'; a resume keeps it.")
    return base


def _override(text: str) -> dict[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {text}: expected section.key=value, such as optim.lr=0.1.")
    if key.strip() == "recipe":
        # It would be the name of settings that are not its own, and a resume starts from those of the name.
        raise ConfigError(f"--set {text}: a recipe is chosen by --recipe, or in the file of --config.")
    return _nested(key.strip(), _override_value(key.strip(), value.strip()))


def _merged(said: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return nested values laid over each other, the later ones on top."""
    merged: dict[str, Any] = {}
    for values in said:
        for key, value in values.items():
            below = merged.get(key)
            deeper = isinstance(value, Mapping) and isinstance(below, dict)
            merged[key] = _merged([cast("dict[str, Any]", below), value]) if deeper else value
    return merged


def _override_value(key: str, value: str) -> Any:
    try:
        return tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError as error:
        if value and value[0] not in _OPENERS:
            # A bare word: the shell has eaten the quotes of schedule.kind="cosine".
            return value
        raise ConfigError(f"--set {key}={value}: the value is not TOML ({error}).") from None


def _nested(key: str, value: Any) -> dict[str, Any]:
    for part in reversed(key.split(".")):
        value = {part: value}
    return cast("dict[str, Any]", value)


def _read_file(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not TOML: no UTF-8 at byte {error.start}.") from None
    return _parse(text, str(path))


def _parse(text: str, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name}: not TOML: {error}.") from None


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def _first_key(section: object) -> str:
    return fields(cast(Any, section))[0].name


def _unknown(path: str, names: list[str], *, where: str) -> str:
    key = path.rpartition(".")[2]
    near = [f"{where}{name}" for name in difflib.get_close_matches(key, names, n=1)] or _same_key_elsewhere(key)
    hint = f"Did you mean '{near[0]}'?" if near else f"There are: {', '.join(names)}."
    return f"{path}: unknown key. {hint}"


def _same_key_elsewhere(key: str) -> list[str]:
    found: dict[str, str] = {}
    for item in fields(TrainConfig):
        if item.default_factory is not MISSING:
            found |= {inner.name: f"{item.name}.{inner.name}" for inner in fields(cast(Any, item.default_factory()))}
    return [found[name] for name in difflib.get_close_matches(key, found, n=1)]


def _typed(path: str, value: Any, *, hint: Any, instead: str = "") -> Any:
    """Return a value of the type that is hinted at. Args: instead: what could be said in its place, for the error."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        inner = [item for item in arguments if item is not type(None)]
        may_be_open = len(inner) < len(arguments)
        if may_be_open and value in (None, "none"):
            return None
        # Of several kinds of number the value's own.
        kind = type(value) if type(value) in inner else inner[0]
        return _typed(path, value, hint=kind, instead=" or none" if may_be_open else "")
    if origin is Literal:
        if value not in arguments or not isinstance(value, str):
            raise ConfigError(f"{path}: {value!r} must be one of {', '.join(map(str, arguments))}.")
        return value
    if origin is tuple:
        return _typed_tuple(path, value, arguments=arguments)
    return _typed_scalar(path, value, kind=hint, instead=instead)


def _typed_tuple(path: str, value: Any, *, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise ConfigError(f"{path}: expected a list, got {value!r}.")
    if arguments[-1] is Ellipsis:
        return tuple(_typed(f"{path}[{i}]", item, hint=arguments[0]) for i, item in enumerate(value))
    if len(value) != len(arguments):
        raise ConfigError(f"{path}: expected {len(arguments)} values, got {len(value)}.")
    pairs = enumerate(zip(value, arguments, strict=True))
    return tuple(_typed(f"{path}[{i}]", item, hint=kind) for i, (item, kind) in pairs)


def _typed_scalar(path: str, value: Any, *, kind: type, instead: str) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind is Path and isinstance(value, (str, Path)):
        return Path(value)
    if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return value
    raise ConfigError(f"{path}: expected {_WORDS.get(kind, kind.__name__)}{instead}, got {value!r}.")
