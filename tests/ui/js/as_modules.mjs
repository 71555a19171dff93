// Browsers take our .js files as modules; Node wants to be told. Used as `node --import`.
import { register } from "node:module";

const hook = `export async function load(url, context, next) {
  return url.endsWith(".js") ? { ...(await next(url, { ...context, format: "module" })), format: "module" } : next(url, context);
}`;
register(`data:text/javascript,${encodeURIComponent(hook)}`);
