"""The OpenAI HTTP API: bodies in, engine calls, answers and SSE chunks out."""
