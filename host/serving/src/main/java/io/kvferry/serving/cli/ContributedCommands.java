// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.cli;

import io.kvferry.multiconnector.discovery.FoundPlugin;
import io.kvferry.multiconnector.discovery.PluginCatalog;
import io.kvferry.serving.AssembledEngine;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.command.CommandProvider;

import picocli.CommandLine;
import picocli.CommandLine.Model.CommandSpec;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.regex.Pattern;

/// Adds the commands that plugins bring to the command line.
///
/// Threading: the main thread.
final class ContributedCommands implements AutoCloseable {
    private static final Pattern NAME = Pattern.compile("[a-z][a-z0-9-]*( [a-z][a-z0-9-]*)?");
    private static final List<String> FOLDER_OPTIONS = List.of("--plugin-folder", "--plugin-dir");

    private final Optional<PluginCatalog> catalog;
    private final List<String> problems = new ArrayList<>();

    private ContributedCommands(Optional<PluginCatalog> catalog) {
        this.catalog = catalog;
    }

    /// Finds the commands of the class path, and of the plugin folder that `args` name: the folder
    /// must be known before the command line is parsed, because it decides which commands exist.
    static ContributedCommands find(List<String> args) {
        try {
            return new ContributedCommands(Optional.of(AssembledEngine.catalog(folder(args))));
        } catch (KvFerryException e) {
            // Every command that takes the option says what is wrong with the folder.
            return new ContributedCommands(Optional.empty());
        }
    }

    private static Optional<Path> folder(List<String> args) {
        int end = args.contains("--") ? args.indexOf("--") : args.size();
        for (int i = 0; i < end; i++) {
            for (var option : FOLDER_OPTIONS) {
                if (args.get(i).startsWith(option + "=")) {
                    return Optional.of(Path.of(args.get(i).substring(option.length() + 1)));
                }
                if (args.get(i).equals(option) && i + 1 < end) {
                    return Optional.of(Path.of(args.get(i + 1)));
                }
            }
        }
        return Optional.empty();
    }

    /// One sentence for each command that was left out.
    List<String> problems() {
        return problems;
    }

    void addTo(CommandLine root) {
        if (catalog.isEmpty()) {
            return;
        }
        var owners = new HashMap<String, FoundPlugin<CommandProvider>>();
        for (var found : catalog.get().of(CommandProvider.class).all()) {
            add(root, found, owners);
        }
    }

    private void add(
            CommandLine root,
            FoundPlugin<CommandProvider> found,
            Map<String, FoundPlugin<CommandProvider>> owners) {
        var name = found.name();
        if (!NAME.matcher(name).matches()) {
            problems.add(describe(found) + ": the name is not one or two lower-case words");
            return;
        }
        var words = name.split(" ", -1);
        var taken = root.getSubcommands().get(words[0]);
        boolean builtIn = taken != null && !owners.containsKey(words[0]);
        if (builtIn || taken != null && words.length == 1) {
            problems.add(
                    describe(found)
                            + ": "
                            + (builtIn
                                    ? "kvferry has a command of that name itself"
                                    : "the name is taken by " + describe(owner(owners, words[0]))));
            return;
        }
        var parent = root;
        if (words.length == 2) {
            if (taken == null) {
                root.addSubcommand(words[0], group(words[0]));
                owners.put(words[0], found);
            }
            parent = Objects.requireNonNull(root.getSubcommands().get(words[0]));
            if (parent.getCommandSpec().userObject() instanceof ContributedCommand
                    || parent.getSubcommands().containsKey(words[1])) {
                problems.add(
                        describe(found)
                                + ": the name is taken by "
                                + describe(owner(owners, words[0])));
                return;
            }
        } else {
            owners.put(words[0], found);
        }
        try {
            parent.addSubcommand(
                    words[words.length - 1], ContributedCommand.spec(found.provider()));
        } catch (RuntimeException | LinkageError e) {
            problems.add(describe(found) + ": cannot be added: " + e);
        }
    }

    private static FoundPlugin<CommandProvider> owner(
            Map<String, FoundPlugin<CommandProvider>> owners, String word) {
        var owner = owners.get(word);
        if (owner == null) {
            throw new IllegalStateException("no plugin brought the command " + word);
        }
        return owner;
    }

    private static CommandSpec group(String name) {
        var spec = CommandSpec.create().name(name).mixinStandardHelpOptions(true);
        spec.usageMessage().description("Commands of a plugin; see kvferry plugins.");
        spec.addSubcommand("help", new CommandLine(new CommandLine.HelpCommand()));
        return spec;
    }

    private static String describe(FoundPlugin<CommandProvider> found) {
        return "command \"" + found.name() + "\" of " + found.where();
    }

    /// Closes the class loaders of the plugin folder; after the command has ended.
    @Override
    public void close() {
        catalog.ifPresent(PluginCatalog::close);
    }
}
