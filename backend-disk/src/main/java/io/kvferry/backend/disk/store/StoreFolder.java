// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import io.kvferry.backend.disk.block.FleetKey;
import io.kvferry.backend.disk.block.RecordFormat;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.disk.FilePublisher;
import io.kvferry.toolkit.disk.FolderMaker;
import io.kvferry.toolkit.disk.FolderNames;
import io.kvferry.toolkit.disk.PathText;
import io.kvferry.toolkit.disk.space.KeyDigest;
import io.kvferry.toolkit.files.FileTrouble;
import io.kvferry.toolkit.files.PrivateFolder;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Pattern;

/// Where things lie below the root: `<namespace digest>/namespace.txt`, `.../blocks/<1 hex>/<64
/// hex>.kvb`, `.../blocks/<1 hex>/durable`, `.../tmp/<1 hex>/<process>-<number>`, `.../bad/<1
/// hex>`, `.../evict.lock` and `.../users.lock`. No part of a path comes from a block's key as it
/// is.
///
/// The stores of a namespace have one folder, whatever the fleet's key and the version of their
/// files, but under another key or in another version a block has another name. So the blocks of an
/// old key or version are not found, are part of the quota, and are evicted in their turn.
final class StoreFolder {
    static final String SUFFIX = ".kvb";

    /// Number of subfolders for blocks and for unfinished files: enough that threads rarely contend
    /// for one folder; few, because each costs a system call per scan, and file systems such as
    /// ext4 place each folder in another part of the disk.
    static final int FOLDERS = 16;

    private static final String DURABLE = "durable";
    private static final int NAMESPACE_HEX = 32;
    private static final Pattern NAME =
            Pattern.compile("[0-9a-f]{" + KeyDigest.HEX_CHARS + "}" + Pattern.quote(SUFFIX));

    private static final byte[] DIGITS = digits();

    private final Path root;
    private final Path folder;
    private final Path blocks;
    private final Path temps;
    private final Path bad;
    private final KeyDigest namespaceDigest;
    private final KeyDigest contentDigest;
    private final KeyDigest mask;
    private final String processTag = UUID.randomUUID().toString().substring(0, 18);

    private final AtomicInteger users = new AtomicInteger();

    private StoreFolder(Path root, StoreConfig config) {
        this.root = root;
        this.namespaceDigest = KeyDigest.ofKey(config.namespace().getBytes(StandardCharsets.UTF_8));
        this.contentDigest = digest(config);
        this.mask = mask(config.key());
        this.folder = root.resolve(namespaceDigest.toString().substring(0, NAMESPACE_HEX));
        this.blocks = folder.resolve("blocks");
        this.temps = folder.resolve("tmp");
        this.bad = folder.resolve("bad");
    }

    /// XORed into the name of a block to separate versions and fleet keys. Its first word is zero,
    /// so a block is in the same subfolder under each. Up to version 2 the version was not
    /// included.
    private static KeyDigest mask(FleetKey key) {
        String text = "version " + RecordFormat.VERSION + "\n" + key.id();
        KeyDigest id = KeyDigest.ofKey(text.getBytes(StandardCharsets.UTF_8));
        return new KeyDigest(0, id.b(), id.c(), id.d());
    }

    /// The digest of namespace and key of a store, which its blocks carry.
    static KeyDigest digest(StoreConfig config) {
        String key = config.key().present() ? "\nkey " + config.key().id() : "";
        return KeyDigest.ofKey((config.namespace() + key).getBytes(StandardCharsets.UTF_8));
    }

    /// Makes or checks the folders.
    ///
    /// @throws KvFerryException [ErrorCode#STORAGE_IO] when they cannot be made,
    ///   [ErrorCode#BAD_CONFIG] when they cannot be there or other users may write to them,
    ///   [ErrorCode#INCOMPATIBLE] when the folder belongs to another namespace
    static StoreFolder open(StoreConfig config, FileCalls calls) {
        var publisher = new FilePublisher(calls, config.durability());
        Path root = config.root().toAbsolutePath().normalize();
        try {
            // From here on a link that is changed leads nowhere else.
            root = new FolderMaker(publisher).makeRoot(root);
        } catch (IOException e) {
            throw unusable(root, e);
        }
        var folder = new StoreFolder(root, config);
        folder.make(config, publisher);
        return folder;
    }

    /// Makes or checks the folders, as [#open].
    void make(StoreConfig config, FilePublisher publisher) {
        try {
            makeAll(publisher);
            checkNamespace();
            if (config.checkFolder()) {
                FolderMaker.checkAccess(
                        List.of(root, folder, blocks, temps, bad),
                        temps(0).resolve(processTag + "-owner"));
            }
        } catch (IOException e) {
            throw unusable(root, e);
        }
    }

    private static KvFerryException unusable(Path root, IOException e) {
        return FileTrouble.exception("cannot use " + root + " as a block store", e);
    }

    private void makeAll(FilePublisher publisher) throws IOException {
        var maker = new FolderMaker(publisher);
        maker.makeRoot(root);
        List.of(folder, temps, bad, blocks).forEach(maker::make);
        for (int i = 0; i < FOLDERS; i++) { // durable with the first block in each
            maker.makeUnsynced(subfolder(i));
            maker.makeUnsynced(temps(i));
        }
    }

    /// If the folder for unreadable files was deleted, makes a new one; whether there is one.
    boolean makeBad(FilePublisher publisher) {
        try {
            new FolderMaker(publisher).make(bad);
            return true;
        } catch (KvFerryException _) {
            return false;
        }
    }

    /// Brings the names of the folders above those of the blocks to the medium if the store is
    /// strict, whoever made them.
    ///
    /// @return 0 or a negated error number
    int syncAbove(FilePublisher publisher) {
        new FolderMaker(publisher).syncParents(root);
        try (Arena arena = Arena.ofConfined()) {
            int rc = publisher.syncNames(PathText.of(arena, root));
            rc = rc == 0 ? publisher.syncNames(PathText.of(arena, folder)) : rc;
            return rc == 0 ? publisher.syncNames(PathText.of(arena, blocks)) : rc;
        }
    }

    /// Guards against folders moved by hand. The file holds a digest, because a namespace contains
    /// the salt of its tenant.
    private void checkNamespace() throws IOException {
        Path file = folder.resolve("namespace.txt");
        byte[] namespace = (namespaceDigest + "\n").getBytes(StandardCharsets.US_ASCII);
        byte[] found = Files.exists(file) ? Files.readAllBytes(file) : new byte[0];
        if (isBlank(found)) {
            Path temporary = temps(0).resolve(processTag + "-namespace");
            PrivateFolder.makeFile(temporary);
            Files.write(temporary, namespace);
            Files.move(
                    temporary,
                    file,
                    StandardCopyOption.ATOMIC_MOVE,
                    StandardCopyOption.REPLACE_EXISTING);
            found = Files.readAllBytes(file);
        }
        if (!Arrays.equals(found, namespace)) {
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE,
                    folder
                            + " belongs to another namespace, see "
                            + file
                            + "; move it away or choose another root");
        }
    }

    /// Empty or zeros: a power cut came between the rename of the file and its bytes, which are
    /// never synced because they can be written again.
    private static boolean isBlank(byte[] content) {
        for (byte each : content) {
            if (each != 0) {
                return false;
            }
        }
        return true;
    }

    /// Whether saves have all the folders that they need.
    boolean isThere() {
        for (int i = 0; i < FOLDERS; i++) {
            if (!Files.isDirectory(subfolder(i)) || !Files.isDirectory(temps(i))) {
                return false;
            }
        }
        return true;
    }

    Path folder() {
        return folder;
    }

    Path blocks() {
        return blocks;
    }

    /// Folder number `i` of [#FOLDERS].
    Path subfolder(int i) {
        return blocks.resolve(Integer.toHexString(i));
    }

    /// The number of the folder of the blocks whose digests begin with this word.
    static int subfolder(long firstWord) {
        return (int) (firstWord >>> 60);
    }

    /// The number of the folder of a block.
    static int subfolder(KeyDigest digest) {
        return subfolder(digest.a());
    }

    /// Folder number `i` of [#FOLDERS] of unfinished files. A thread uses one, so that threads of a
    /// process do not wait for each other's changes of it.
    Path temps(int i) {
        return temps.resolve(Integer.toHexString(i));
    }

    Path lockFile() {
        return folder.resolve("evict.lock");
    }

    /// The folder of files that the medium could not read.
    Path bad() {
        return bad;
    }

    Path usersFile() {
        return folder.resolve("users.lock");
    }

    /// What the blocks of this namespace and key carry.
    KeyDigest contentDigest() {
        return contentDigest;
    }

    /// The file name of a block without its suffix, as a digest, or the block of such a name.
    private KeyDigest masked(KeyDigest digest) {
        return new KeyDigest(
                digest.a(), digest.b() ^ mask.b(), digest.c() ^ mask.c(), digest.d() ^ mask.d());
    }

    /// The block, perhaps under another key, of a file of this name; empty for other files.
    Optional<KeyDigest> block(String name) {
        return NAME.matcher(name).matches()
                ? Optional.of(masked(KeyDigest.ofHex(name.substring(0, KeyDigest.HEX_CHARS))))
                : Optional.empty();
    }

    /// The same of the name that a listing is at, without an object: puts the words of the block's
    /// digest into `words` from `first` on; false for other files.
    boolean block(FolderNames name, long[] words, int first) {
        if (name.length() != KeyDigest.HEX_CHARS + SUFFIX.length()) {
            return false;
        }
        for (int i = 0; i < SUFFIX.length(); i++) {
            if (name.at(KeyDigest.HEX_CHARS + i) != SUFFIX.charAt(i)) {
                return false;
            }
        }
        int at = 0;
        int all = 0;
        for (int i = first; i < first + KeyDigest.WORDS; i++) {
            long word = 0;
            for (int digit = 0; digit < Long.BYTES * 2; digit++) {
                int value = DIGITS[name.at(at++) & 0xFF];
                word = word << 4 | value;
                all |= value;
            }
            words[i] = word;
        }
        words[first + 1] ^= mask.b();
        words[first + 2] ^= mask.c();
        words[first + 3] ^= mask.d();
        return all >= 0;
    }

    /// The values of the hexadecimal digits, lower-case, by their bytes; -1 for other bytes. A
    /// branch per digit would go wrong every third time.
    private static byte[] digits() {
        var digits = new byte[256];
        Arrays.fill(digits, (byte) -1);
        for (byte value = 0; value < 16; value++) {
            digits[Character.forDigit(value, 16)] = value;
        }
        return digits;
    }

    /// Whether the file says that its folder is durable, or was to become one that does.
    static boolean isMark(Path file) {
        return file.getFileName().toString().startsWith(DURABLE);
    }

    /// The file of a block, for tests, tools and messages.
    Path file(KeyDigest digest) {
        String hex = masked(digest).toString();
        return blocks.resolve(hex.substring(0, 1)).resolve(hex + SUFFIX);
    }

    /// Path buffers for one thread, in memory that lives as long as `arena`.
    Names names(Arena arena) {
        return new Names(arena, users.incrementAndGet());
    }

    /// Names of files as the system wants them, rewritten in place per block.
    final class Names {
        private static final byte[] HEX = "0123456789abcdef".getBytes(StandardCharsets.US_ASCII);
        private static final int COUNTER_HEX = 16;
        private static final String FOLDER = "a/";

        private final MemorySegment file;
        private final MemorySegment top;
        private final MemorySegment inner;
        private final MemorySegment temp;
        private final MemorySegment badFile;
        private final MemorySegment mark;
        private final MemorySegment freshMark;
        private final int prefix;
        private final int tempPrefix;
        private long counter;

        private Names(Arena arena, int user) {
            String fileForm = blocks + "/" + FOLDER + "0".repeat(KeyDigest.HEX_CHARS) + SUFFIX;
            this.file = arena.allocateFrom(fileForm, PathText.CHARSET);
            this.top = PathText.of(arena, blocks);
            this.inner = arena.allocateFrom(blocks + "/a", PathText.CHARSET);
            this.prefix = (blocks + "/").getBytes(PathText.CHARSET).length;
            // Processes begin at different folders.
            int folder = Math.floorMod(processTag.hashCode() + user, FOLDERS);
            String tempForm = temps(folder) + "/" + processTag + "-" + user + "-";
            this.temp = arena.allocateFrom(tempForm + "0".repeat(COUNTER_HEX), PathText.CHARSET);
            this.badFile = arena.allocateFrom(bad + "/0", PathText.CHARSET);
            String markForm = blocks + "/" + FOLDER + DURABLE;
            this.mark = arena.allocateFrom(markForm, PathText.CHARSET);
            String freshForm = markForm + "-" + processTag + "-" + user;
            this.freshMark = arena.allocateFrom(freshForm, PathText.CHARSET);
            this.tempPrefix = tempForm.getBytes(PathText.CHARSET).length;
        }

        /// Path of the block; valid until the next call.
        MemorySegment file(KeyDigest digest) {
            return file(digest.a(), digest.b(), digest.c(), digest.d());
        }

        MemorySegment file(long a, long b, long c, long d) {
            folder(file, a);
            int at = prefix + FOLDER.length();
            at = hex(file, at, a);
            at = hex(file, at, b ^ mask.b());
            at = hex(file, at, c ^ mask.c());
            hex(file, at, d ^ mask.d());
            return file;
        }

        /// The folder above all of those.
        MemorySegment blocksFolder() {
            return top;
        }

        /// The folder of the block whose digest begins with this word.
        MemorySegment folder(long firstWord) {
            folder(inner, firstWord);
            return inner;
        }

        /// A file in that folder that is there only when the folder's name and those above it are
        /// durable: it is deleted with the folder.
        MemorySegment durableMark(long firstWord) {
            folder(mark, firstWord);
            return mark;
        }

        /// The file that is renamed to [#durableMark].
        MemorySegment freshMark(long firstWord) {
            folder(freshMark, firstWord);
            return freshMark;
        }

        /// Where a file that cannot be read is set aside: one of sixteen names, so that these files
        /// stay few; a file that has the name is replaced.
        MemorySegment bad(KeyDigest digest) {
            nibble(badFile, badFile.byteSize() - 2, digest.a());
            return badFile;
        }

        /// A fresh name for an unfinished file; valid until the next call.
        MemorySegment nextTemp() {
            hex(temp, tempPrefix, ++counter);
            return temp;
        }

        private void folder(MemorySegment path, long firstWord) {
            nibble(path, prefix, firstWord >>> 60);
        }

        private static int hex(MemorySegment path, int at, long word) {
            for (int shift = 60; shift >= 0; shift -= 4) {
                nibble(path, at++, word >>> shift);
            }
            return at;
        }

        private static void nibble(MemorySegment path, long at, long value) {
            path.set(ValueLayout.JAVA_BYTE, at, HEX[(int) value & 0xF]);
        }
    }
}
