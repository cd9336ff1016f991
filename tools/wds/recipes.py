"""The commands for recipes: ``wds recipes list`` and ``show``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from wds.console import AsJson, print_json, print_line

if TYPE_CHECKING:
    from resnettrain import Recipe

__all__ = ["recipes_app"]

recipes_app = typer.Typer(no_args_is_help=True, help="Look at the named sets of settings that `wds train` knows.")

_ELSEWHERE, _HERE = "published elsewhere", "measured here"


@recipes_app.command("list")
def list_recipes(as_json: AsJson = False) -> None:
    """List the recipes, with what others report for their settings and what was measured here."""
    from resnettrain import RECIPES

    if as_json:
        print_json({"recipes": [_document(recipe) for recipe in RECIPES.values()]})
        return
    for recipe in RECIPES.values():
        print_line(f"{recipe.name:<14}  {recipe.summary}")
        for words, figure in _figures(recipe):
            print_line(f"{'':<14}  {words}: {figure}")


@recipes_app.command("show")
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The recipe.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Show a recipe: its source, its figures, what is different here, and its settings as TOML for `--config`."""
    from resnettrain import RECIPES, recipe, to_mapping, to_toml

    settings = recipe(name)
    known = RECIPES[name]
    if as_json:
        print_json({**_document(known), "config": to_mapping(settings)})
        return
    print_line(f"# {name}: {known.summary}")
    print_line(f"# source: {known.source}")
    for words, figure in _figures(known):
        print_line(f"# {words}: {figure}")
    for note in known.notes:
        print_line(f"# {note}")
    print_line()
    print_line(to_toml(settings).rstrip())


def _figures(recipe: Recipe) -> list[tuple[str, str]]:
    """Return whose figure it is and the figure, for those that there are."""
    figures = []
    if recipe.published is not None:
        cost = f"; {recipe.published.cost}" if recipe.published.cost else ""
        figures.append((_ELSEWHERE, f"top-1 {recipe.published.top1} %, {recipe.published.protocol}{cost}"))
    if recipe.measured is not None:
        figures.append((_HERE, recipe.measured))
    return figures


def _document(recipe: Recipe) -> dict[str, object]:
    published = recipe.published
    return {
        "name": recipe.name,
        "summary": recipe.summary,
        "source": recipe.source,
        "published_elsewhere": None
        if published is None
        else {"top1_percent": published.top1, "protocol": published.protocol, "cost": published.cost},
        "measured_here": recipe.measured,
        "notes": list(recipe.notes),
    }
