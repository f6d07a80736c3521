"""The documentation: its pages as Markdown, the parts that are generated, and the built pages."""
