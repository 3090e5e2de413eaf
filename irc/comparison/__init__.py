"""Whether two models, or one model in two engines, compute the same: engines, measures, and the search for a place."""
