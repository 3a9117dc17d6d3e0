// Starts `tunec lsp` and hands it the files that it may know; all else is the server's.
const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

const LANGUAGES = ["yaml", "json", "jsonc", "toml", "shellscript", "python", "dotenv"];

let client;

function started() {
  const [command, ...words] = vscode.workspace.getConfiguration("tunec").get("command");
  const server = { command, args: [...words, "lsp"] };
  const selected = LANGUAGES.map((language) => ({ scheme: "file", language }));
  const unnamed = { scheme: "file", pattern: "**/{tunec.toml,hostfile,*.hostfile,*.env}" };
  return new LanguageClient("tunec", "tunec", server, {
    documentSelector: [...selected, unnamed],
    synchronize: {
      fileEvents: vscode.workspace.createFileSystemWatcher("**/*.{yaml,yml,json,toml}"),
    },
  });
}

async function start() {
  client = started();
  try {
    await client.start();
  } catch (reason) {
    vscode.window.showErrorMessage(
      `tunec lsp does not start: ${reason.message}. Install it with pip install 'tunec[lsp]', or set tunec.command.`,
    );
  }
}

async function stop() {
  const running = client;
  client = undefined;
  if (running !== undefined && running.isRunning()) {
    await running.stop();
  }
}

exports.activate = async (context) => {
  const restart = vscode.commands.registerCommand("tunec.restart", async () => {
    await stop();
    await start();
  });
  context.subscriptions.push(restart);
  await start();
};

exports.deactivate = stop;
