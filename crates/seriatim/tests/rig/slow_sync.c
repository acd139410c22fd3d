/*
 * Loaded before the C library: a disk that takes 50 ms longer for each sync. With STALL_FILE, a path, defined, it is instead
 * one that syncs nothing as long as that file exists.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
#include <unistd.h>

static void wait_for_ms(long ms)
{
	struct timespec left = { .tv_sec = 0, .tv_nsec = ms * 1000 * 1000 };

	while (nanosleep(&left, &left) != 0)
		;
}

int fdatasync(int file)
{
	static int (*sync_really)(int);

	if (!sync_really)
		sync_really = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
#ifdef STALL_FILE
	while (access(STALL_FILE, F_OK) == 0)
		wait_for_ms(10);
#else
	wait_for_ms(50);
#endif
	return sync_really(file);
}
