"""A store, or raw data before it is built, as one page that a browser shows without a network.

In: the path of a store, or of raw data and how it is to be read. Out: an HTML file that holds all
it shows, or a server for this machine alone. `store_view` and `raw_view` choose samples, `cards`
makes of each what the page needs, `figures` reads the index, `page` puts all into one file, `serve`
gives a large store away in parts. Called by the functions of `packer` and by the command line.

The page is data and a program that draws it (`page.html`, `page.css`, `page.js`). Text of a store
reaches the browser as JSON alone, and the program never makes markup of it: a class may be called
`<script>`.
"""
