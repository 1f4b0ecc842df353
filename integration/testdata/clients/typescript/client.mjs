// Drive one stdio MCP server with the official TypeScript SDK and print what it saw.
//
// usage: client.mjs COMMAND [ARGUMENT...] < plan.json
//
// The plan is {"calls": [{"label", "tool", "arguments"}...], "push": {"uri",
// "change"}}; the answer is one JSON object on stdout. After the calls it
// subscribes to the resource, runs the command "change", waits until it is told of
// an update and reads the resource. The server gets this process's environment. The SDK checks
// structuredContent against the outputSchema that the server listed and throws
// where they differ: such a call is reported under "raised".

import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { promisify } from 'node:util';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { McpError, ResourceUpdatedNotificationSchema } from '@modelcontextprotocol/sdk/types.js';

// A call that hangs must end here, with the name of the call, not in the test's own deadline.
const options = { timeout: 30_000 };

async function attempt(call) {
  try {
    return { result: await call() };
  } catch (error) {
    // The SDK's own checks throw McpError too; they alone say so in their text.
    if (error instanceof McpError && !/structured content|output schema/i.test(error.message)) {
      return { error: { code: error.code, message: error.message } };
    }
    return { raised: String(error) };
  }
}

const [command, ...args] = process.argv.slice(2);
const plan = JSON.parse(readFileSync(0, 'utf8'));
const transport = new StdioClientTransport({ command, args, env: process.env, stderr: 'inherit' });

let protocol = null;
transport.setProtocolVersion = version => { protocol = version; };

const client = new Client({ name: 'tmux-mcpd-test', version: '1' });
await client.connect(transport, options);
const seen = {
  protocol,
  server: client.getServerVersion()?.name ?? null,
  tools: await attempt(() => client.listTools({}, options)),
  ping: await attempt(() => client.ping(options)),
  calls: {},
};
for (const { label, tool, arguments: given } of plan.calls) {
  seen.calls[label] = await attempt(() => client.callTool({ name: tool, arguments: given }, undefined, options));
}

let timer;
const updated = new Promise((resolve, reject) => {
  timer = setTimeout(() => reject(new Error('no update')), options.timeout);
  client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => resolve(params.uri));
});
const { uri, change: [program, ...rest] } = plan.push;
await client.subscribeResource({ uri }, options);
await promisify(execFile)(program, rest);
seen.push = { updated: await updated, read: await attempt(() => client.readResource({ uri }, options)) };
clearTimeout(timer);
await client.unsubscribeResource({ uri }, options);
await client.close();
console.log(JSON.stringify(seen));
