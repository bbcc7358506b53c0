"""The server: WebSocket, OpenAI routes, observability and the chat UI over one engine."""
