/*
 * For script/test --sanitize: the server, which leaves our functions by
 * longjmp() when there is an error, was not built with AddressSanitizer, and a
 * library that brings it along comes too late to see those jumps.  So what it
 * keeps about the variables of those functions would stay, and spoil what lies
 * there next.  Preloaded, this tells it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <setjmp.h>
#include <stdlib.h>

/*
 * A process that loads the library late cannot be told by the environment: the
 * server has written its title over that.
 */
const char *__asan_default_options(void);
const char *__ubsan_default_options(void);

const char *
__asan_default_options(void)
{
	return "verify_asan_link_order=0:detect_leaks=0";
}

const char *
__ubsan_default_options(void)
{
	return "print_stacktrace=1";
}

typedef void (*Jump) (struct __jmp_buf_tag *env, int value);

static void jump(const char *name, struct __jmp_buf_tag *env, int value)
	__attribute__((noreturn));

static void
jump(const char *name, struct __jmp_buf_tag *env, int value)
{
	void		(*forget_stack) (void) =
		(void (*) (void)) dlsym(RTLD_DEFAULT, "__asan_handle_no_return");
	Jump		real = (Jump) dlsym(RTLD_NEXT, name);

	if (forget_stack)
		forget_stack();
	real(env, value);
	abort();
}

/* siglongjmp() by its own name, and as it is called with _FORTIFY_SOURCE */
void
siglongjmp(sigjmp_buf env, int value)
{
	jump("siglongjmp", env, value);
}

void		__longjmp_chk(sigjmp_buf env, int value)
	__attribute__((noreturn));

void
__longjmp_chk(sigjmp_buf env, int value)
{
	jump("__longjmp_chk", env, value);
}
