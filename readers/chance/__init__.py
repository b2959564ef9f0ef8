"""Random numbers and orders that are a function of a seed and a place, without state or tables.

In: a seed and what the number is for. Out: numbers, permutations, draws. Called by `orders` and
`ops`.
"""
