"""What is wrong and how to mend it, as data; renderers know nothing of any rule."""
