"""What people keep for themselves: searches under a name."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class SavedView(models.Model):
    """A search of the turn list that one person gave a name."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="saved_views")
    name = models.CharField(max_length=60)
    q = models.CharField(max_length=2000)

    class Meta:
        ordering = ["name"]
        # Also serves the list beside the turns, by owner.
        constraints = [models.UniqueConstraint(fields=["owner", "name"], name="one_view_a_name")]

    def __str__(self) -> str:
        return self.name
