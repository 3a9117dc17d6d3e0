"""Faults and their fixes as data; renderers know nothing of any rule."""
