/** Starts the page: storage, connection, then the components. */
import { mount } from "svelte";
import App from "./App.svelte";
import { openAddressed } from "./lib/app/address";
import { ChatApp } from "./lib/app/app.svelte";
import { factoryDefaults } from "./lib/app/preferences";
import { Server, socketUrl } from "./lib/app/server.svelte";
import { openHistory } from "./lib/history/browser_store";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/prose.css";
import "./styles/code.css";

const server = new Server(socketUrl(document.baseURI), __PAGE_VERSION__);
server.start();

let app: ChatApp | null = null;
const store = await openHistory(factoryDefaults().sampling, () => {
  if (app !== null)
    app.chats.problem = "The browser closed this page's storage. Reload the page to keep new chats.";
});
app = new ChatApp(server, store);
await Promise.all([app.chats.refresh(), openAddressed(app.chats)]);

const target = document.getElementById("app");
if (target === null) throw new Error("index.html has no #app");
mount(App, { target, props: { app } });
